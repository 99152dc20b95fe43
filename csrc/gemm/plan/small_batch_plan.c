#include "small_batch_plan.h"

#include <limits.h>
#include <math.h>

/* Registers of a multiprocessor, and the shared memory that each block takes beside its own. */
enum { REGISTERS = 65536, RESERVED = 1024 };

static int64_t round_up(int64_t count, int64_t to)
{
    return ceil_div(count, to) * to;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ------------------------------------------------------------------ copies */

/* Divides the copy of `lines` lines of `length` floats of each matrix among the threads. */
static void divide(BatchCopy *copy, int lines, int length, int threads)
{
    copy->units = copy->float4 ? length / 4 : length;
    const int at_once = threads / copy->units;
    copy->matrices = at_once > lines ? at_once / lines : 1;
    copy->lines = at_once > lines ? lines : at_once;
}

/* Places `lines` lines of each matrix one behind the other. To avoid bank conflicts, the distance
 * between matrices is an odd number of float4s, as is the one between lines of K-major tiles. */
static void place(BatchCopy *copy, int lines, int length, bool k_major, int matrices)
{
    const int pitch = (int)round_up(length, 4);
    copy->unit = copy->float4 ? 4 : 1;
    copy->line = k_major && pitch % 8 == 0 ? pitch + 4 : pitch;
    copy->matrix = lines * copy->line;
    copy->matrix += copy->matrix % 8 == 0 ? 4 : 0;
    copy->bytes = matrices * copy->matrix * 4;
}

/* K chunks of `size` rows of A, or columns of B, padded to `padded`, copied to shared memory. */
static BatchCopy operand_copy(const PlanOperand *X, bool float4, int size, int padded,
                              const SmallBatchPlan *plan)
{
    BatchCopy copy = {.float4 = float4, .k_major = X->k_major};
    if (X->k_major) {
        divide(&copy, size, plan->depth, plan->threads);
        place(&copy, padded, plan->depth, true, plan->matrices);
    } else {
        divide(&copy, plan->depth, size, plan->threads);
        place(&copy, plan->depth, padded, false, plan->matrices);
    }
    return copy;
}

/* ------------------------------------------------------------------ plans */

/* Divides the tasks among the blocks that fit in the multiprocessors. */
static void divide_tasks(SmallBatchPlan *plan, const PlanShape *s, const PlanDevice *d)
{
    const int registers =
        plan->thread_tile == 8 ? SMALL_BATCH_REGISTERS_8 : SMALL_BATCH_REGISTERS_4;
    const int64_t resident =
        least(((int64_t)d->shared_bytes + RESERVED) / (plan->shared_bytes + RESERVED),
              REGISTERS / (registers * plan->threads));
    const int64_t tiles = (int64_t)plan->tiles_down * plan->tiles_across;
    plan->tasks = (unsigned)(tiles > 1 ? s->count * tiles : ceil_div(s->count, plan->matrices));
    plan->blocks = (int)least(plan->tasks, d->multiprocessors * most(resident, 1));
}

/* Whole matrices of an operand: `size` rows of A, or columns of B, and `depth` steps of K. Threads
 * of a warp read the same step of several lines or matrices. If these are multiples of 16 floats,
 * the threads would meet in two of the 32 banks, so a gap of four floats follows each piece: a line
 * along K, or a matrix if a warp computes at least two. The gaps need float4s that do not cross
 * pieces. */
static BatchCopy packed_copy(const PlanOperand *X, int size, int depth, int threads_of_matrix)
{
    enum { GAP = 4 };
    BatchCopy copy = {.k_major = X->k_major};
    const int length = X->k_major ? depth : size, floats = size * depth;
    copy.line = length;
    copy.matrix = floats;
    if (X->aligned && X->k_major && length % 16 == 0) {
        copy.piece = length;
        copy.line += GAP;
        copy.matrix = size * copy.line;
    } else if (X->aligned && floats % 16 == 0 && threads_of_matrix <= 16) {
        copy.piece = floats;
        copy.matrix += GAP;
    }
    return copy;
}

/* Rows of a task, for batches that are arrays without gaps: all rows of a matrix if they fit, or
 * some of a high one. 0 if too few fit. A stage has B and these rows of A, or all of A if its rows
 * are not contiguous. */
static int64_t packed_rows(const PlanShape *s, int64_t stage_floats)
{
    enum { T = 4, C_FLOATS = 4096 };
    const int64_t others = s->K * s->N + (s->A.k_major ? 0 : s->M * s->K);
    if (others >= stage_floats || s->N > T * SMALL_BATCH_THREADS) {
        return 0;
    }
    const int64_t units = SMALL_BATCH_THREADS / ceil_div(s->N, T); /* of T rows */
    const int64_t in_stage = s->A.k_major ? (stage_floats - others) / s->K : s->M;
    const int64_t fit = least(least(in_stage, C_FLOATS / s->N), units * T) / T * T;
    return s->M <= fit ? s->M : fit < T ? 0 : round_up(ceil_div(s->M, ceil_div(s->M, fit)), T);
}

/* Whole matrices, or `rows` of each, for batches that are arrays without gaps. */
static SmallBatchPlan packed_plan(const PlanShape *s, int64_t rows, int slices, const PlanDevice *d)
{
    enum { T = 4, STAGE_BYTES = 32768 };
    SmallBatchPlan plan = {
        .packed = true,
        .slices = slices,
        .thread_tile = T,
        .rows = (int)rows,
        .cols = (int)s->N,
        .tiles_down = (int)ceil_div(s->M, rows),
        .tiles_across = 1,
        .thread_rows = (int)ceil_div(rows, T),
        .thread_cols = (int)ceil_div(s->N, T),
        .depth = (int)s->K,
    };
    const int of_matrix = plan.thread_rows * plan.thread_cols * slices;
    plan.A = packed_copy(&s->A, (int)(s->A.k_major ? rows : s->M), plan.depth, of_matrix);
    plan.B = packed_copy(&s->B, plan.cols, plan.depth, of_matrix);
    const int64_t floats = plan.A.matrix + plan.B.matrix;
    const int64_t fit = least(STAGE_BYTES / (4 * floats + 4), SMALL_BATCH_THREADS / of_matrix);
    plan.matrices =
        plan.tiles_down > 1 ? 1 : (int)most(1, least(fit, ceil_div(s->count, d->multiprocessors)));
    plan.threads = (int)most(64, round_up(plan.matrices * of_matrix, 32));
    /* An array begins up to three floats behind a 16-byte boundary. */
    plan.A.bytes = (int)round_up(4 * ((int64_t)plan.matrices * plan.A.matrix + 3), 16);
    plan.B.bytes = (int)round_up(4 * ((int64_t)plan.matrices * plan.B.matrix + 3), 16);
    plan.C.bytes = (int)round_up(4 * (plan.matrices * rows * s->N + 3), 16);
    plan.shared_bytes = SMALL_BATCH_STAGES * (plan.A.bytes + plan.B.bytes) + plan.C.bytes;
    divide_tasks(&plan, s, d);
    return plan;
}

/* Divides C into tiles of equal size up to rounding. */
static void divide_results(SmallBatchPlan *plan, int64_t M, int64_t N)
{
    const int T = plan->thread_tile;
    int64_t down = ceil_div(M, SMALL_BATCH_TILE), across = ceil_div(N, SMALL_BATCH_TILE);
    do {
        plan->thread_rows = (int)ceil_div(ceil_div(M, down), T);
        plan->thread_cols = (int)ceil_div(ceil_div(N, across), T);
        if (plan->thread_cols > plan->thread_rows) {
            ++across;
        } else {
            ++down;
        }
    } while (plan->thread_rows * plan->thread_cols > SMALL_BATCH_THREADS);
    plan->tiles_down = (int)ceil_div(M, plan->thread_rows * T);
    plan->tiles_across = (int)ceil_div(N, plan->thread_cols * T);
    plan->rows = (int)least(M, plan->thread_rows * T);
    plan->cols = (int)least(N, plan->thread_cols * T);
}

/* Floats of a stage of a block. With 8 x 8 results, 12 warps of a multiprocessor hide latency:
 * longer chunks are better than more warps. */
static int64_t stage_floats(int thread_tile, int threads, const PlanDevice *d)
{
    const int64_t blocks = ceil_div(12 * 32, threads);
    const int64_t bytes =
        thread_tile == 8 ? d->shared_bytes / (blocks * SMALL_BATCH_STAGES) - 512 : 256 * threads;
    return least(bytes, d->shared_bytes / (2 * SMALL_BATCH_STAGES)) / 4; /* two blocks fit */
}

static SmallBatchPlan tile_plan(const PlanShape *s, const PlanDevice *d)
{
    const bool tiny = least(s->M, s->N) <= 16 || most(s->M, s->N) <= 32;
    const int T = tiny ? 4 : 8, most_threads = tiny || most(s->M, s->N) <= 64 ? 128 : 256;
    const int64_t K = most(s->K, 1);
    SmallBatchPlan plan = {.thread_tile = T};
    divide_results(&plan, s->M, s->N);
    const int padded_rows = plan.thread_rows * T, padded_cols = plan.thread_cols * T;
    const int of_matrix = plan.thread_rows * plan.thread_cols;

    const bool a_float4 =
        s->A.aligned && s->A.remainder == 0 && s->K > 0 && (s->A.k_major ? s->K : s->M) % 4 == 0;
    const bool b_float4 =
        s->B.aligned && s->B.remainder == 0 && s->K > 0 && (s->B.k_major ? s->K : s->N) % 4 == 0;
    /* A thread copies one unit of a line, so there are as many threads as units. */
    const int least_threads = T == 8 && a_float4 && b_float4 && s->C_is_float4 ? 64 : 128;

    /* Matrices at once: as many as keep most threads of a multiprocessor busy, with work for all
     * multiprocessors, and chunks of at least 16 steps of K. */
    const bool one_tile = plan.tiles_down == 1 && plan.tiles_across == 1;
    const int64_t of_step = padded_rows + padded_cols; /* floats of a matrix */
    const int64_t K_padded = round_up(K, 4), least_depth = least(K_padded, 16);
    const int64_t largest =
        one_tile ? least(most_threads / of_matrix, ceil_div(s->count, d->multiprocessors)) : 1;
    int64_t floats = 0, busiest = 0;
    for (int matrices = 1; matrices <= most(largest, 1); ++matrices) {
        const int threads = (int)most(round_up(matrices * of_matrix, 32), least_threads);
        const int64_t fit = stage_floats(T, threads, d);
        const int64_t busy = matrices * of_matrix * most(512 / threads, 1);
        if (matrices == 1 ||
            (fit >= matrices * of_step * least_depth && 32 * busy > 33 * busiest)) {
            plan.matrices = matrices;
            plan.threads = threads;
            floats = fit;
            busiest = busy;
        }
    }
    if (T == 8) { /* padding of K-major tiles */
        floats -= 4 * plan.matrices *
                  ((s->A.k_major ? padded_rows : 0) + (s->B.k_major ? padded_cols : 0));
    }
    const int64_t whole = least(floats / (plan.matrices * of_step), 128);
    const int64_t deepest = most(whole / 8 * 8, 8);
    plan.depth = (int)(K <= whole ? K_padded : round_up(ceil_div(K, ceil_div(K, deepest)), 8));

    plan.A = operand_copy(&s->A, a_float4, plan.rows, padded_rows, &plan);
    plan.B = operand_copy(&s->B, b_float4, plan.cols, padded_cols, &plan);
    plan.C.float4 = s->C_is_float4;
    if (T == 4) {
        divide(&plan.C, plan.rows, plan.cols, plan.threads);
        place(&plan.C, padded_rows, padded_cols, false, plan.matrices);
    }
    plan.shared_bytes = SMALL_BATCH_STAGES * (plan.A.bytes + plan.B.bytes) + plan.C.bytes;
    divide_tasks(&plan, s, d);
    return plan;
}

/* Bytes of the whole batch. */
static double bytes_of(const PlanShape *s)
{
    const double M = (double)s->M, N = (double)s->N, K = (double)s->K;
    return 4 * (double)s->count * (M * K + K * N + M * N);
}

/* The estimated cycles of a plan. */
static double cycles_of(const SmallBatchPlan *plan, const PlanShape *s, const PlanDevice *d)
{
    enum { WARPS = 4 }; /* that issue in the same cycle */
    const int T = plan->thread_tile;
    const double of_multiply = plan->packed ? small_packed
                               : T == 4     ? small_results_4
                                            : small_results_8;
    const double results = (double)plan->matrices * plan->rows * plan->cols;
    const double factors = (double)plan->matrices * (plan->rows + plan->cols) * plan->depth;
    const double chunks = (double)most(ceil_div(s->K, most(plan->depth, 1)), 1);
    const double loads =
        factors / (plan->packed || (plan->A.float4 && plan->B.float4) ? 4 : 1) / plan->threads;
    const double stores = results / (plan->packed || plan->C.float4 ? 4 : 1) / plan->threads;
    const int slices = plan->packed ? plan->slices : 1;
    const double steps = (double)ceil_div(plan->depth, slices);
    const double of_warp =
        chunks * (T * T * steps * of_multiply + loads * small_copy + small_chunk) +
        stores * small_copy + small_task + small_sums * log2(slices);
    /* Blocks that fit a multiprocessor hide each other's latency; few of them do not. */
    const double warps = (double)ceil_div(plan->blocks, d->multiprocessors) * plan->threads / 32.0;
    const double rounds = (double)ceil_div(plan->tasks, plan->blocks);
    const double busy = rounds * of_warp * fmax(warps / WARPS, small_latency);
    /* Rows of a matrix that are different tasks read the same B. */
    const double again = plan->packed && plan->tiles_down > 1
                             ? (plan->A.bytes + plan->B.bytes) * (double)plan->tasks / small_from_l2
                             : 0;
    const PlanConstants *const c = d->constants;
    const double memory = fmax(bytes_of(s) / c->from_memory, again) / d->multiprocessors;
    return c->launch + overlapped(memory, busy);
}

/* Whether these kernels are faster than tiles of fixed sizes, as measured on an H100. */
static bool is_faster(const SmallBatchPlan *plan, const PlanShape *s)
{
    const int64_t longer = most(s->M, s->N);
    if (plan->packed) {
        return true;
    }
    if (plan->thread_tile == 4) { /* or the batch fits in the L2 cache */
        return longer <= 24 || least(s->M, s->N) <= 16 || bytes_of(s) > 32e6;
    }
    return plan->A.float4 && plan->B.float4 && plan->C.float4 && longer % 32 != 0 &&
           (longer <= 48 || (longer > 64 && longer <= 104));
}

/* Multiply-adds for each float of A, B and C. */
static double intensity(const PlanShape *s)
{
    return 1 / (1 / (double)s->M + 1 / (double)s->N + 1 / (double)s->K);
}

/* The best of these plans: `rows` of a matrix and slices of K, as many as a block has threads. */
static SmallBatchPlan best_packed(SmallBatchPlan best, const PlanShape *s, const PlanDevice *d)
{
    enum { T = 4 };
    static const int64_t stage_floats[] = {6144, 12288};
    double least_cycles = is_faster(&best, s) ? cycles_of(&best, s, d) : HUGE_VAL;
    for (size_t i = 0; i < sizeof stage_floats / sizeof *stage_floats; ++i) {
        const int64_t rows = packed_rows(s, stage_floats[i]);
        const int64_t units = ceil_div(rows, T) * ceil_div(s->N, T);
        for (int slices = 1; rows > 0 && slices <= 32 && units * slices <= SMALL_BATCH_THREADS &&
                             2 * slices <= most(s->K, 2);
             slices *= 2) {
            const SmallBatchPlan plan = packed_plan(s, rows, slices, d);
            const double cycles = cycles_of(&plan, s, d);
            if (plan.shared_bytes <= d->shared_bytes && cycles < least_cycles) {
                best = plan;
                least_cycles = cycles;
            }
        }
    }
    return best;
}

SmallBatchPlan small_batch_plan(const PlanShape *s, const PlanDevice *d)
{
    enum { MOST_PACKED = 44, MOST_INTENSITY = 14, THIN = 16 };
    const bool in_float4s = s->M % 4 == 0 && s->N % 4 == 0 && s->K % 4 == 0 && s->A.aligned &&
                            s->B.aligned && s->C_is_float4;
    const bool is_small = most(most(s->M, s->N), s->K) <= MOST_PACKED;
    if (s->packed && is_small && !in_float4s) {
        return packed_plan(s, s->M, 1, d);
    }
    const SmallBatchPlan plan = tile_plan(s, d);
    const bool is_vector = least(s->M, s->N) == 1; /* for dot.h */
    const bool is_for_tiles = is_small || is_vector || (in_float4s && least(s->M, s->N) <= THIN);
    return s->packed && !is_for_tiles && s->K > 0 && intensity(s) <= MOST_INTENSITY
               ? best_packed(plan, s, d)
               : plan;
}

bool small_batch_supports(const PlanShape *s, const PlanDevice *d)
{
    enum { MOST_SIDE = 1 << 20 };
    if (s->M < 1 || s->N < 1 || most(s->M, s->N) > MOST_SIDE || s->count > INT_MAX) {
        return false;
    }
    const SmallBatchPlan plan = small_batch_plan(s, d);
    return is_faster(&plan, s) && (plan.thread_tile == 4 || !plan.B.k_major) &&
           plan.shared_bytes <= d->shared_bytes &&
           s->count <= INT_MAX / ((int64_t)plan.tiles_down * plan.tiles_across);
}

double small_batch_cycles(const PlanShape *s, const PlanDevice *d)
{
    const SmallBatchPlan plan = small_batch_plan(s, d);
    return cycles_of(&plan, s, d);
}
