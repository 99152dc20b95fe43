#include "plan.h"

#include "direct_plan.h"
#include "fused_plan.h"
#include "waves_plan.h"

/* Tiles of mma, by the shared memory that a block can have (mma.cu). */
static const struct {
    int rows, cols, shared_bytes;
} mma_tiles[] = {{128, 128, 193 << 10}, {128, 64, 145 << 10}, {64, 64, 0}};

enum { TILE = 128, DEPTH = 64, FITTED = 132 /* multiprocessors */ };

/* Cycles to split rows of an operand: each element (4 bytes) is read twice, and its hi/lo pair (4
 * bytes) is written. */
static double splitting(int64_t rows, double depth)
{
    return 12 * (double)(ceil_div(rows, TILE) * TILE) * depth /
           (tensor_splitting * plan_fitted.from_memory * FITTED);
}

/* The same for an operand with these strides along K and along its rows. */
static double splitting_any(int64_t rows, double depth, int64_t k_stride, int64_t mn_stride)
{
    return splitting(rows, depth) * (k_stride == 1 && mn_stride % 4 != 0 ? tensor_unaligned : 1);
}

static double estimate_waves(const Sgemm *p, int multiprocessors)
{
    const Matrix *const A = &p->A, *const B = &p->B;
    const bool symmetric = sgemm_is_symmetric(p);
    const double depth = (double)(ceil_div(p->A.cols, DEPTH) * DEPTH);
    const double stored = tensor_store * store_factor(p) * mirrored_factor(p, symmetric);
    const double of_result = depth / tensor_rate + stored;
    return tensor_start +
           (double)p->count *
               (splitting_any(p->C.rows, depth, A->col_stride, A->row_stride) +
                (symmetric ? 0 : splitting_any(p->C.cols, depth, B->row_stride, B->col_stride))) +
           plan_waves(p, symmetric, multiprocessors).waves * TILE * TILE * of_result;
}

/* The problem that `fused` computes. */
static Sgemm fused_problem(const Sgemm *p)
{
    return fused_transposes(p) ? sgemm_transposed(p) : *p;
}

/* The rung decides in the same way. */
static double estimate_fused(const Sgemm *p, int multiprocessors)
{
    const Sgemm oriented = fused_problem(p);
    return plan_fused(&oriented, sgemm_is_symmetric(p), multiprocessors).cycles;
}

double plan_estimate_mma(const Sgemm *p, const TensorCores *cores, double *multiply_adds)
{
    const double depth = (double)(ceil_div(p->A.cols, DEPTH) * DEPTH), count = (double)p->count;
    size_t i = 0;
    while (mma_tiles[i].shared_bytes > cores->shared_bytes) {
        ++i;
    }
    const int rows = mma_tiles[i].rows, cols = mma_tiles[i].cols;
    const int64_t tiles = tiles_of_one(p, sgemm_is_symmetric(p), rows, cols);
    const double results = (double)ceil_div(tiles, cores->multiprocessors) * rows * cols;
    *multiply_adds = count * results * depth;
    const double both =
        splitting(p->C.rows, depth) + (sgemm_is_symmetric(p) ? 0 : splitting(p->C.cols, depth));
    return *multiply_adds / cores->proof->rate +
           count * (cores->proof->start + both * FITTED / cores->multiprocessors +
                    results * tensor_store);
}

TensorCores plan_tensor_cores(const char *model, const int capability[2], const PlanDevice *device)
{
    const bool hopper = capability[0] == 9 && capability[1] == 0;
    const TensorCores found = {hopper, hopper ? NULL : proof_find(model, capability),
                               device->multiprocessors, device->shared_bytes};
    return found;
}

double plan_estimate_tensor(const Sgemm *p, const TensorCores *cores, TensorRung *rung)
{
    *rung = TENSOR_NONE;
    if ((!cores->proof && !cores->hopper) || p->A.cols < (cores->proof ? MMA_MIN_K : WGMMA_MIN_K)) {
        return INFINITY;
    }
    if (cores->proof) {
        double multiply_adds;
        *rung = TENSOR_MMA;
        return plan_estimate_mma(p, cores, &multiply_adds);
    }
    const double waves = estimate_waves(p, cores->multiprocessors);
    const double fused = estimate_fused(p, cores->multiprocessors);
    *rung = fused < waves ? TENSOR_FUSED : TENSOR_WAVES;
    return fused < waves ? fused : waves;
}

TensorRung plan_tensor_rung(double cycles, const Sgemm *p, const TensorCores *cores)
{
    TensorRung rung;
    const double best = plan_estimate_tensor(p, cores, &rung);
    return best < tensor_margin * cycles ? rung : TENSOR_NONE;
}

int plan_groups(const Sgemm *problems, int count, const TensorCores *cores, FusedGroups *groups)
{
    if (!cores->hopper || problems->A.cols < WGMMA_MIN_K ||
        fused_groups_find(problems, count, groups) < 2) {
        return 0;
    }
    fused_groups_plan(groups, cores->multiprocessors);
    return groups->starts.count;
}

/* The cycles of `auto`, with fp16 pairs or without. */
static double estimate_float32(const Sgemm *p, const PlanDevice *device)
{
    const TensorCores cores = {true, NULL, device->multiprocessors, device->shared_bytes};
    TensorRung rung;
    double cycles = plan_choose(p, device).cycles;
    if (p->count > 1) {
        Sgemm one = *p;
        one.count = 1;
        const double singly = plan_choose(&one, device).cycles;
        cycles = fmin(cycles, (double)p->count * fmax(singly, launch_cycles));
    }
    return fmin(cycles, plan_estimate_tensor(p, &cores, &rung));
}

/* The cycles to make a float32 copy of a matrix of 16 bits, or of a batch. X becomes the copy. */
static double widening(Matrix *X, int64_t count)
{
    const double matrices = X->batch_stride == 0 ? 1 : (double)count;
    const bool by_columns = X->col_stride != 1;
    const int64_t pitch = leading_dimension(by_columns ? X->rows : X->cols);
    X->row_stride = by_columns ? 1 : pitch;
    X->col_stride = by_columns ? pitch : 1;
    return widening_start + 6 * matrices * (double)X->rows * (double)X->cols / fused_memory;
}

/* One product. `mixed` takes the tiles and slices of fused. */
static double estimate_mixed(const Sgemm *p, bool is_split, int multiprocessors)
{
    const FusedPlan plan = plan_fused(p, false, multiprocessors);
    const double M = (double)p->C.rows, N = (double)p->C.cols, K = (double)p->A.cols;
    const double product =
        mixed_product * fused_product_cycles(p, fused_tiles(p, false, &plan), &plan,
                                             store_factor(p), multiprocessors);
    const double memory = (2 * M * K + 4 * fused_padded(p) + 4 * M * N) / fused_memory;
    const double splitting =
        mixed_split_start + fused_strided(p) + 8 * fused_padded(p) / mixed_splitting;
    const double copying = tma_can_load_16bit(&p->A) ? 0 : fused_copy + 4 * M * K / fused_copying;
    return mixed_start + pow(pow(product, 4) + pow(memory, 4), 0.25) + (is_split ? 0 : splitting) +
           copying;
}

bool plan_prefers_mixed(const Sgemm *p, bool is_split, const PlanDevice *device)
{
    if (p->A.cols < WGMMA_MIN_K || device->multiprocessors == 0) {
        return false;
    }
    Sgemm one = *p;
    one.count = 1;
    const double mixed = estimate_mixed(&one, is_split, device->multiprocessors);
    Sgemm widened = *p;
    widened.A.data = NULL; /* aligned */
    const double copying = widening(&widened.A, p->count);
    return (double)p->count * mixed < mixed_margin * (copying + estimate_float32(&widened, device));
}

bool plan_prefers_direct(const Sgemm *p, const PlanDevice *device)
{
    if (p->count == 1 || device->multiprocessors == 0) {
        return p->count == 1;
    }
    Sgemm widened = *p;
    const double copying = widening(&widened.A, p->count) + widening(&widened.B, p->count);
    return device->constants->launch + plan_direct(p, device->multiprocessors).cycles <
           copying + estimate_float32(&widened, device);
}

int64_t plan_tensor_batch(TensorRung rung, const Sgemm *batch)
{
    if (rung == TENSOR_MMA) {
        return 1; /* it takes no batches */
    }
    const int64_t most = (int64_t)512 << 20; /* bytes of fp16 pairs, and of copies */
    const Sgemm p = rung == TENSOR_FUSED ? fused_problem(batch) : *batch;
    const int64_t M = ceil_div(p.C.rows, TILE) * TILE, N = ceil_div(p.C.cols, TILE) * TILE;
    const bool takes_rows = rung == TENSOR_WAVES || fused_lines_apart(&p) < 0;
    const int64_t each = 4 * (takes_rows ? M + N : N) * ceil_div(p.A.cols, DEPTH) * DEPTH;
    const int64_t count = each < most ? most / each : 1;
    return count < BATCH_OF_LAUNCH ? count : BATCH_OF_LAUNCH;
}
