#include "plan.h"

#include <math.h>
#include <string.h>

#include "../kernel/lower_tiles.h"
#include "small_batch_plan.h"

typedef struct {
    int BM, BN, BK, WM, WN, TM, TN, slices, blocks;
} Tile;

#define TILE(BM, BN, BK, WM, WN, TM, TN, SLICES, BLOCKS, SLOTS)                                    \
    {BM, BN, BK, WM, WN, TM, TN, SLICES, BLOCKS},
static const Tile tiles[] = {TILES(TILE)};
#undef TILE

static int warps_of(const Tile *t)
{
    return t->BM / t->WM * (t->BN / t->WN) * t->slices;
}

/* ------------------------------------------------------------------ what a plan depends on */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Whether the matrix begins on a 16-byte boundary, and all others of its batch do. */
static bool is_aligned(const Matrix *X)
{
    return (uintptr_t)X->data % 16 == 0 && X->batch_stride % 4 == 0;
}

/* Whether matrices and batch have no gaps, or all products share one matrix. */
static bool is_packed(const Matrix *X)
{
    const bool by_rows = X->col_stride == 1;
    const int64_t length = by_rows ? X->cols : X->rows, lines = by_rows ? X->rows : X->cols;
    const int64_t pitch = by_rows ? X->row_stride : X->col_stride;
    return (lines == 1 || pitch == length) &&
           (X->batch_stride == 0 || X->batch_stride == length * lines);
}

static PlanOperand operand_of(const Matrix *X, int64_t k_stride, int64_t mn_stride)
{
    const int64_t pitch = k_stride == 1 ? mn_stride : k_stride;
    return (PlanOperand){k_stride == 1, is_aligned(X), pitch > 0, (int8_t)(pitch & 3)};
}

PlanShape plan_shape(const Sgemm *p)
{
    PlanShape shape;
    memset(&shape, 0, sizeof shape); /* padding too: keys are compared by memcmp */
    shape.M = p->C.rows;
    shape.N = p->C.cols;
    shape.K = p->A.cols;
    shape.count = p->count;
    shape.A = operand_of(&p->A, p->A.col_stride, p->A.row_stride);
    shape.B = operand_of(&p->B, p->B.row_stride, p->B.col_stride);
    shape.C_is_float4 = p->C.cols % 4 == 0 && p->C.row_stride % 4 == 0 && is_aligned(&p->C);
    shape.stores_float4 = p->beta == 0 && shape.C_is_float4;
    shape.symmetric = sgemm_is_symmetric(p);
    shape.packed = is_packed(&p->A) && is_packed(&p->B) && is_packed(&p->C);
    return shape;
}

static PlanShape as_planned(PlanShape shape, bool transposed)
{
    const PlanShape s = shape;
    if (transposed) {
        shape.M = s.N;
        shape.N = s.M;
        shape.A = s.B;
        shape.B = s.A;
    }
    return shape;
}

static int64_t tiles_of(const Tile *t, const PlanShape *s)
{
    return ceil_div(s->M, t->BM) * ceil_div(s->N, t->BN) * s->count;
}

/* ------------------------------------------------------------------ estimates */

static double copy_slots(PlanOperand X, const PlanConstants *c)
{
    return X.k_major ? c->k_major_copy : X.aligned && X.remainder == 0 ? 0 : c->mn_major_copy;
}

/* Cycles to read A and B once, write C once, and move `wasted` floats more. */
static double memory_cycles(const PlanShape *s, double wasted, const PlanDevice *d)
{
    const double M = (double)s->M, N = (double)s->N, K = (double)s->K;
    return 4 * (double)s->count * (M * K + K * N + M * N + wasted) /
           (d->constants->from_memory * d->multiprocessors);
}

int plan_group(int64_t splits)
{
    return splits <= 8 ? 1 : (int)ceil(sqrt((double)splits));
}

/* Cycles to add the partial sums of several blocks in memory. */
static double split_cycles(int64_t splits, double results, const PlanShape *s, const PlanDevice *d)
{
    const PlanConstants *const c = d->constants;
    const int64_t group = plan_group(splits);
    const int64_t added = group == 1 ? splits : group + ceil_div(splits, group);
    const double all = (double)s->M * (double)s->N * (double)(splits + 1);
    return c->arriving * (group > 1 ? 2 : 1) + 4 * all / (c->from_memory * d->multiprocessors) +
           4 * results * (double)added / c->splitk_reduce_rate;
}

/* One block of a plan with tiles. */
typedef struct {
    double of_warp; /* issue slots of each warp */
    double alone;   /* cycles if it is alone on its multiprocessor, where it cannot hide latency */
    double steps;   /* tiles along K */
} Block;

static Block block_of(const Plan *plan, const PlanShape *s, const PlanConstants *c)
{
    const Tile *const t = &tiles[plan->kernel];
    const double steps = (double)ceil_div(ceil_div(s->K, t->BK), plan->splits),
                 depth = steps * t->BK;

    /* If blocks or slices are added, each result is also written for the others and read once
     * more; to be mirrored, it is read twice. */
    const bool in_memory = plan->splits > 1 && !plan->cluster;
    const bool reduces = plan->splits > 1 || t->slices > 1 || plan->transposed || plan->mirrors;
    const int sharers = t->slices * (plan->cluster ? plan->splits : 1);
    const double handed_on =
        in_memory ? 1 : (s->stores_float4 && !plan->transposed ? 0.5 : 2.0) / sharers;
    const double read = (1 + handed_on) * (plan->mirrors ? 2 * simt_mirrored : 1);
    const double stored = (t->TM * t->TN) * c->store * (reduces ? 1 + read : 1);
    const double copies =
        (t->BM * copy_slots(s->A, c) + t->BN * copy_slots(s->B, c)) / (32.0 * warps_of(t));

    /* Alone, it waits in each step of K, and at least for memory in each tile. */
    const double wait = c->gemv_round / 4;
    const double waits = t->BK * ((0.5 * (t->TM * t->TN) + c->latency) / t->slices + copies);
    return (Block){
        .of_warp = depth * (c->slots[plan->kernel] / t->slices + copies) + stored,
        .alone = stored + wait + steps * fmax(waits, wait),
        .steps = steps,
    };
}

/* Each contiguous piece of a tile also loads half a sector that is not used: these floats. */
static double wasted_by(const Tile *t, const PlanShape *s)
{
    return 4 * (double)s->K *
           ((double)s->M / (s->A.k_major ? t->BK : t->BM) +
            (double)s->N / (s->B.k_major ? t->BK : t->BN));
}

static double estimate_tiles(const Plan *plan, const PlanShape *s, const PlanDevice *d)
{
    const Tile *const t = &tiles[plan->kernel];
    const PlanConstants *const c = d->constants;
    const double results = (double)t->BM * t->BN;
    const Block block = block_of(plan, s, c);
    const double of_warp = block.of_warp, alone = block.alone;

    /* Clusters of more than 2 blocks leave some multiprocessors of a GPC idle. */
    const bool wide = plan->cluster && plan->splits > 2 && d->multiprocessors > 1;
    const int places = wide ? d->multiprocessors * 15 / 16 : d->multiprocessors;
    const int64_t computed =
        plan->mirrors ? lower_tiles(t->BM, t->BN, s->M) * s->count : tiles_of(t, s);
    const int64_t each = ceil_div(computed * plan->splits, places);
    const int64_t waves =
        each > t->blocks ? ceil_div(each, t->blocks) - 1 : 0; /* before the last */
    /* If few blocks are resident, they end at the same time, and one multiprocessor gets one more
     * block of the last wave than the others. */
    const bool together = t->blocks == 2 || (t->blocks == 3 && block.steps <= 8);
    const int64_t remainder = each - waves * t->blocks;
    const int64_t last = waves > 0 && together && remainder < t->blocks ? remainder + 1 : remainder;
    const bool in_step = t->blocks <= 2 || t->blocks * warps_of(t) < 8;
    const double full = (double)waves * of_warp * t->blocks * warps_of(t) / 4;
    const double before = overlapped(full, (in_step ? (double)waves : sqrt((double)waves)) * alone);
    const double busy = before +
                        overlapped(of_warp * (double)ceil_div(last * warps_of(t), 4), alone) +
                        4 * (double)(waves + 1) * results / c->store_rate;

    const bool in_memory = plan->splits > 1 && !plan->cluster;
    return c->launch + overlapped(memory_cycles(s, wasted_by(t, s), d), busy) +
           (plan->cluster ? c->cluster_reduce_cycles
            : in_memory   ? split_cycles(plan->splits, results, s, d)
                          : 0);
}

/* The rung tma: tiles of 128 x 256, and threads of 8 x 16 results like the first row of TILES. It
 * divides the last two waves of tiles evenly among all blocks if that is faster (stream-K). */
static double estimate_streamk(const PlanShape *s, const PlanDevice *d)
{
    enum { BM = 128, BN = 256, BK = 32, RESULTS = 128 };
    const PlanConstants *const c = d->constants;
    const double places = d->multiprocessors, steps = (double)ceil_div(s->K, BK);
    const double tiles = (double)(ceil_div(s->M, BM) * ceil_div(s->N, BN));
    const bool tma = !s->B.k_major && s->B.aligned && s->B.has_pitch && s->B.remainder == 0;
    const double copies = (BM * copy_slots(s->A, c) + (tma ? 0 : BN * copy_slots(s->B, c))) / 256;
    const double of_step = 2 * BK * (c->slots[0] + c->streamk_copies * copies);
    /* A multiprocessor has one block, so nothing hides how a tile begins and ends. */
    const double of_tile = c->launch + 2 * RESULTS * c->store + 4.0 * BM * BN / c->store_rate;

    const double full = floor(tiles / places), whole = full > 1 ? full - 1 : 0;
    const double shared = tiles - whole * places, shares = fmin(floor(shared * steps / 4), places);
    if (fmod(tiles, places) == 0 || shares < 2) {
        const double waves = ceil(tiles / places);
        return c->launch + overlapped(memory_cycles(s, 0, d), waves * (steps * of_step + of_tile));
    }
    const double even = ceil(shared * steps / shares), of_share = even / steps;
    const double blocks = shares / shared + 1; /* that share a tile */
    return c->launch + c->arriving +
           overlapped(memory_cycles(s, 0, d), whole * (steps * of_step + of_tile) + even * of_step +
                                                  (of_share + 1) * of_tile) +
           4.0 * BM * BN * (blocks + 1) / c->splitk_reduce_rate;
}

static double estimate_dot(const PlanShape *s, const PlanDevice *d)
{
    const PlanConstants *const c = d->constants;
    const DotPlan dot = dot_plan(s->M * s->N, s->K, s->count > 1, s->A.k_major && s->B.k_major);
    const int sharers = dot.sharers;
    const double rounds = (double)ceil_div(s->K, DOT_IN_FLIGHT(dot.by_lines) * sharers);
    const int64_t blocks = ceil_div(s->M * s->N * sharers, DOT_THREADS) * s->count;
    const double threads = (double)blocks * DOT_THREADS / d->multiprocessors;
    /* If B is row-major, a block reads only 4 or 16 of its columns, in part twice. */
    const double K_by_N = (double)s->K * (double)s->N;
    const double wasted = s->B.k_major || sharers == 1 ? 0
                          : sharers == 32              ? 2 * K_by_N
                                                       : K_by_N / 2;
    const double steps = threads * c->dot_step * (2 + (dot.by_lines ? 2 : 1) * rounds);
    return c->launch + c->dot_round * rounds + overlapped(memory_cycles(s, wasted, d), steps);
}

/* How GEMV computes a product. */
typedef struct {
    int rows; /* of a block */
    bool by_rows, staged;
    int64_t places; /* for blocks, on all multiprocessors */
    int deep, column_step;
    double singly; /* scalar loads beside each float4 of B */
} Gemv;

static Gemv gemv_of(const PlanShape *s, const PlanDevice *d)
{
    const bool by_rows = !s->B.k_major, staged = !by_rows && !s->A.k_major;
    const bool in_float4s = !by_rows && !staged && s->K % 4 == 0 && s->A.aligned && s->B.aligned &&
                            (s->A.remainder == 0 || s->M == 1) &&
                            (s->B.remainder == 0 || s->N == 1);
    const int rows = s->M > 4 ? GEMV_ROWS : s->M > 2 ? 4 : (int)s->M;
    const int resident = in_float4s ? GEMV_RESIDENT_BY_FLOAT4(rows) : GEMV_RESIDENT(rows);
    return (Gemv){
        .rows = rows,
        .by_rows = by_rows,
        .staged = staged,
        .places = (int64_t)d->multiprocessors * resident,
        .deep = GEMV_DEEP(rows, staged),
        .column_step = by_rows ? 1 : GEMV_COLUMN_STEP(s->B.remainder),
        .singly = by_rows                ? s->B.remainder != 0 || !s->B.aligned
                  : staged || in_float4s ? 0
                                         : rows,
    };
}

static int64_t gemv_blocks(const Gemv *g, const PlanShape *s, int width)
{
    const int64_t strip = (int64_t)width * g->column_step;
    return (s->N / strip * g->column_step + least(s->N % strip, g->column_step)) *
           ceil_div(s->M, g->rows) * s->count;
}

/* Steps of K in one round of loads. */
static int64_t gemv_depth(const Gemv *g, int width)
{
    const int64_t loaded = (4 * g->deep << GEMV_THREAD_BITS) / width;
    return g->staged ? least(loaded, GEMV_STAGED(g->rows)) : loaded;
}

static double estimate_gemv(const Plan *plan, const PlanShape *s, const PlanDevice *d)
{
    const PlanConstants *const c = d->constants;
    const Gemv g = gemv_of(s, d);
    const int64_t blocks = gemv_blocks(&g, s, plan->width) * plan->splits;
    const int64_t steps = ceil_div(s->K, plan->splits);
    const double of_row = c->gemv_round / 5, singly = c->gemv_round / 10;
    const double unshared = c->gemv_unshared * (s->A.k_major ? 1 : 2) / plan->width;
    const double round = c->gemv_round + g.rows * of_row + g.deep * g.singly * singly +
                         (g.by_rows ? g.rows * g.deep * unshared : 0);
    const double staged = g.staged ? g.rows * c->gemv_staged * (double)steps : 0;
    const double waits = (double)ceil_div(blocks, g.places) *
                             (c->gemv_block + staged +
                              (double)ceil_div(steps, gemv_depth(&g, plan->width)) * round) +
                         c->gemv_filling * (double)least(blocks, g.places) / d->multiprocessors;
    /* Half a sector is wasted in each row of a block's columns. */
    const double memory =
        memory_cycles(s, 0, d) * (g.by_rows && plan->width < s->N ? 1 + 4.0 / plan->width : 1);
    const double added = 4.0 * g.rows * plan->width * plan->splits / c->splitk_reduce_rate;
    return c->gemv_launch + overlapped(waits, memory) +
           (plan->splits > 1 ? c->arriving + added : 0);
}

static double estimate(const Plan *plan, const PlanShape *shape, const PlanDevice *device)
{
    if (plan->kernel == SMALL_BATCH) {
        return small_batch_cycles(shape, device);
    }
    const PlanShape s = as_planned(*shape, plan->transposed);
    return plan->kernel == GEMV      ? estimate_gemv(plan, &s, device)
           : plan->kernel == DOT     ? estimate_dot(&s, device)
           : plan->kernel == STREAMK ? estimate_streamk(&s, device)
                                     : estimate_tiles(plan, &s, device);
}

double plan_estimate(const Plan *plan, const Sgemm *problem, const PlanDevice *device)
{
    const PlanShape shape = plan_shape(problem);
    return estimate(plan, &shape, device);
}

/* ------------------------------------------------------------------ the choice */

static bool supports(const Plan *plan, const PlanShape *shape, const PlanDevice *device)
{
    if (plan->kernel == SMALL_BATCH) {
        return shape->count > 1 && small_batch_supports(shape, device);
    }
    const PlanShape s = as_planned(*shape, plan->transposed);
    if (s.count > 1 && (plan->kernel == STREAMK || plan->splits > 1)) {
        return false; /* kernels of one product */
    }
    if (plan->kernel == STREAMK) { /* tiles differ in how K is divided */
        return !plan->transposed && !s.symmetric;
    }
    if (plan->kernel == DOT) { /* its indices have 32 bits */
        return s.K <= DOT_MOST && s.M <= DOT_MOST && s.N <= DOT_MOST && s.M * s.N <= DOT_MOST;
    }
    if (plan->kernel == GEMV) {
        const Gemv g = gemv_of(&s, device);
        if (s.symmetric && g.column_step > 1 && s.M > 1) {
            return false; /* columns differ in how K is divided */
        }
        return s.M <= GEMV_MOST_ROWS && (plan->splits == 1 || plan->splits <= s.K / 4) &&
               gemv_blocks(&g, &s, plan->width) <= INT32_MAX / plan->splits;
    }
    const Tile *const t = &tiles[plan->kernel];
    if (plan->mirrors && (!s.symmetric || plan->splits > 1 || t->slices > 1)) {
        return false;
    }
    const bool fits = !plan->cluster || (plan->splits <= device->widest_cluster &&
                                         plan->splits * warps_of(t) * 32 <= CLUSTER_MOST_THREADS);
    return fits && TILE_SHARED(t->BM, t->BN, t->BK) <= device->shared_bytes &&
           (plan->splits == 1 ? !plan->transposed || t->slices > 1
                              : plan->splits <= ceil_div(s.K, t->BK)) &&
           tiles_of(t, &s) <= INT32_MAX / plan->splits;
}

bool plan_supports(const Plan *plan, const Sgemm *problem, const PlanDevice *device)
{
    const PlanShape shape = plan_shape(problem);
    return supports(plan, &shape, device);
}

Plan plan_fallback(void)
{
    return (Plan){.kernel = TILE_FALLBACK, .splits = 1};
}

typedef struct {
    const PlanShape *shape;
    const PlanDevice *device;
    Plan *plans;
    int count;
} List;

static void add(List *list, Plan plan)
{
    if (supports(&plan, list->shape, list->device)) {
        plan.cycles = estimate(&plan, list->shape, list->device);
        list->plans[list->count++] = plan;
    }
}

/* Without split-K, and with as many splits as fill the GPU. */
static void add_gemv(List *list, bool transposed)
{
    const PlanShape s = as_planned(*list->shape, transposed);
    const Gemv g = gemv_of(&s, list->device);
    const int most = g.by_rows ? GEMV_WIDEST_BY_ROWS(g.rows) : GEMV_WIDEST_BY_COLUMNS;
    for (int width = g.by_rows ? 4 : 1; s.M <= GEMV_MOST_ROWS && width <= most; width *= 2) {
        Plan plan = {.kernel = GEMV, .splits = 1, .transposed = transposed, .width = width};
        add(list, plan);
        const int64_t whole = s.K / gemv_depth(&g, width);
        plan.splits = (int)least(whole, g.places / gemv_blocks(&g, &s, width));
        if (plan.splits > 1) {
            add(list, plan);
        }
    }
}

/* For each tile of C: one block; a cluster; or as many blocks as give each multiprocessor 1, 2, 4
 * or 6. A split is at least two tiles deep. And one block for each tile of a lower triangle. */
static void add_tiles(List *list, int kernel, bool transposed)
{
    const Tile *const t = &tiles[kernel];
    const PlanShape s = as_planned(*list->shape, transposed);
    const int64_t count = tiles_of(t, &s), multiprocessors = list->device->multiprocessors;
    const int64_t most = s.K / (2 * t->BK), places = t->blocks * multiprocessors / count;
    Plan plan = {.kernel = kernel, .splits = 1, .transposed = transposed, .mirrors = true};
    add(list, plan);
    plan.mirrors = false;
    add(list, plan);
    plan.cluster = true;
    for (plan.splits = 2; plan.splits <= least(CLUSTER_MOST_BLOCKS, least(most, places));
         plan.splits *= 2) {
        add(list, plan);
    }
    plan.cluster = false;
    int before = 1;
    for (int each = 1; each <= least(t->blocks, 6); each += each < 2 ? 1 : 2) {
        plan.splits = (int)least(each * multiprocessors / count, most);
        if (plan.splits > before) {
            before = plan.splits;
            add(list, plan);
        }
    }
}

int plan_list(const PlanShape *shape, const PlanDevice *device, Plan plans[PLANS_MOST])
{
    List list = {shape, device, plans, 0};
    add(&list, (Plan){.kernel = DOT, .splits = 1});
    add(&list, (Plan){.kernel = SMALL_BATCH, .splits = 1});
    add_gemv(&list, false);
    add_gemv(&list, true);
    if (shape->count > 1 || least(shape->M, shape->N) > 1) { /* a vector has no data reuse */
        add(&list, (Plan){.kernel = STREAMK, .splits = 1});
        for (int kernel = 0; kernel < TILE_COUNT; ++kernel) {
            for (int transposed = 0; transposed <= (shape->M > shape->N); ++transposed) {
                /* Not if more than 7 of 8 rows of a tile are outside C. */
                if (8 * (transposed ? shape->N : shape->M) >= tiles[kernel].BM) {
                    add_tiles(&list, kernel, transposed);
                }
            }
        }
    }
    return list.count;
}

/* ------------------------------------------------------------------ many products */

int64_t plan_tiles(int kernel, int64_t rows, int64_t cols)
{
    return ceil_div(rows, tiles[kernel].BM) * ceil_div(cols, tiles[kernel].BN);
}

/* The plan in a launch that computes `products` products. */
static GroupedPlan grouped_plan(int kernel, bool transposed, const PlanShape *shape,
                                int64_t products, const PlanDevice *d)
{
    const Plan plan = {.kernel = kernel, .splits = 1, .transposed = transposed};
    const PlanShape s = as_planned(*shape, transposed);
    const Tile *const t = &tiles[kernel];
    const Block block = block_of(&plan, &s, d->constants);
    /* The other blocks of a multiprocessor hide latency. */
    const double of_block = fmax(block.of_warp * warps_of(t) / 4, block.alone / t->blocks) +
                            4.0 * t->BM * t->BN / d->constants->store_rate;
    GroupedPlan found = {.kernel = kernel, .transposed = transposed, .block = block.alone};
    found.share = overlapped(memory_cycles(&s, wasted_by(t, &s), d),
                             (double)tiles_of(t, &s) * of_block / d->multiprocessors);
    found.cycles = found.share + found.block / (double)products;
    return found;
}

GroupedPlan plan_in_group(const Sgemm *problem, int64_t products, const PlanDevice *device)
{
#define KERNEL(index) index,
    static const int kernels[] = {GROUPED_TILES(KERNEL)};
#undef KERNEL
    const PlanShape shape = plan_shape(problem);
    GroupedPlan best = {.kernel = -1, .cycles = HUGE_VAL};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; ++i) {
        for (int transposed = 0; transposed <= (shape.M > shape.N); ++transposed) {
            const Plan plan = {.kernel = kernels[i], .splits = 1, .transposed = transposed};
            if (supports(&plan, &shape, device)) {
                const GroupedPlan plan_of_tile =
                    grouped_plan(kernels[i], transposed, &shape, products, device);
                best = plan_of_tile.cycles < best.cycles ? plan_of_tile : best;
            }
        }
    }
    return best;
}
