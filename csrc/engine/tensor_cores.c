#include "plan.h"

#include <math.h>

/* Constants for split-fp16 products on tensor cores, fitted to an H200: for `waves` float32
 * multiply-adds per cycle and multiprocessor, cycles of all launches, and cycles to check and store
 * a result. */
static const double tensor_rate = 565, tensor_start = 19000, tensor_store = 1.4;

/* For `fused`, fitted to an H100: cycles of all launches; of a block to load its first tiles and to
 * store its results; to begin and end the kernel that adds slices of K, and for each slice;  bytes of
 * partial sums per cycle and multiprocessor; cycles to check and store a result. B takes longer to
 * split if it is MN-major. */
static const double fused_start = 14000, fused_block = 5300, fused_adding = 5300, fused_slice = 700,
                    fused_collecting = 5.6, fused_store = 1.5, fused_across = 1.5;
/* Cycles of a K chunk of a tile of 128 rows, by the tile's width. */
static const struct {
    int width;
    double of_chunk;
} fused_tiles[] = {{64, 1440}, {128, 2100}};
/* `waves` takes less than its estimate, which is for an H200's cold launches. It takes about this
 * share, minus these cycles. */
static const double waves_share = 0.85, waves_less = 12000;

/* Tiles of mma, by the shared memory that a block can have (14_mma.cu). */
static const struct {
    int rows, cols, shared_bytes;
} mma_tiles[] = {{128, 128, 193 << 10}, {128, 64, 145 << 10}, {64, 64, 0}};

enum { TILE = 128, DEPTH = 64, FITTED = 132 /* multiprocessors */ };

static int64_t ceil_div(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

/* Cycles to split rows of an operand: each element (4 bytes) is read twice, and its hi/lo pair (4
 * bytes) is written. */
static double splitting(int64_t rows, double depth)
{
    return 12 * (double)(ceil_div(rows, TILE) * TILE) * depth /
           (2.0 / 3 * plan_fitted.from_memory * FITTED);
}

static double estimate_waves(const Sgemm *p, int multiprocessors)
{
    const double depth = (double)(ceil_div(p->A.cols, DEPTH) * DEPTH);
    const int64_t tiles = ceil_div(p->C.rows, TILE) * ceil_div(p->C.cols, TILE) * p->count;
    const double waves = (double)ceil_div(tiles, multiprocessors);
    return tensor_start +
           (double)p->count * (splitting(p->C.rows, depth) + splitting(p->C.cols, depth)) +
           waves * TILE * TILE * (depth / tensor_rate + tensor_store);
}

/* The time of each product of a batch in one launch; infinite if TMA cannot load A, because simt was
 * faster in all such products that were measured. The rung chooses its tiles and slices of K likewise
 * (17_fused.cu). */
static double estimate_fused(const Sgemm *p, int multiprocessors)
{
    enum { MOST_SLICES = 16, SHORTEST_SLICE = 4 };
    const bool transposed = p->C.cols > 2 * p->C.rows;
    const int64_t M = transposed ? p->C.cols : p->C.rows, N = transposed ? p->C.rows : p->C.cols;
    const int64_t chunks = ceil_div(p->A.cols, DEPTH);
    const Matrix *const A = transposed ? &p->B : &p->A;
    const int64_t along = transposed ? A->row_stride : A->col_stride;
    const int64_t pitch = transposed ? A->col_stride : A->row_stride;
    if (along != 1 || pitch % 4 != 0 || (uintptr_t)A->data % 16 != 0) {
        return INFINITY;
    }
    double product = INFINITY;
    for (size_t i = 0; i < sizeof fused_tiles / sizeof *fused_tiles; ++i) {
        const int64_t tiles = ceil_div(M, TILE) * ceil_div(N, fused_tiles[i].width) * p->count;
        for (int slices = 1; slices <= MOST_SLICES; ++slices) {
            if (slices > 1 && slices * SHORTEST_SLICE > chunks) {
                break;
            }
            const double waves = (double)ceil_div(tiles * slices, multiprocessors);
            const double results = (double)TILE * fused_tiles[i].width;
            const double of_block = fused_block +
                                    fused_tiles[i].of_chunk * (double)ceil_div(chunks, slices) +
                                    (slices == 1 ? fused_store * results : 0);
            const double sums = 8 * (double)tiles * results;
            const double of_slice = fused_slice + sums / (fused_collecting * FITTED);
            const double adding = slices == 1 ? 0 : fused_adding + slices * of_slice;
            product = fmin(product, waves * of_block + adding);
        }
    }
    const double count = (double)p->count;
    const double memory =
        4 * count * (double)M * (double)(p->A.cols + N) / (plan_fitted.from_memory * FITTED);
    const double both = pow(pow(product, 4) + pow(memory, 4), 0.25); /* they mostly overlap */
    const Matrix *const B = transposed ? &p->A : &p->B;
    const bool b_is_k_major = (transposed ? B->col_stride : B->row_stride) == 1;
    return (fused_start + both) / count +
           splitting(N, (double)(chunks * DEPTH)) * (b_is_k_major ? 1 : fused_across);
}

double plan_estimate_mma(const Sgemm *p, const TensorCores *cores, double *multiply_adds)
{
    const double depth = (double)(ceil_div(p->A.cols, DEPTH) * DEPTH), count = (double)p->count;
    size_t i = 0;
    while (mma_tiles[i].shared_bytes > cores->shared_bytes) {
        ++i;
    }
    const int rows = mma_tiles[i].rows, cols = mma_tiles[i].cols;
    const int64_t tiles = ceil_div(p->C.rows, rows) * ceil_div(p->C.cols, cols);
    const double results = (double)ceil_div(tiles, cores->multiprocessors) * rows * cols;
    *multiply_adds = count * results * depth;
    const double both = splitting(p->C.rows, depth) + splitting(p->C.cols, depth);
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

TensorRung plan_tensor_rung(double cycles, const Sgemm *p, const TensorCores *cores)
{
    if (p->A.cols < SPLIT_FP16_MIN_K) {
        return TENSOR_NONE;
    }
    if (cores->proof) {
        double multiply_adds;
        return plan_estimate_mma(p, cores, &multiply_adds) < cycles ? TENSOR_MMA : TENSOR_NONE;
    }
    if (!cores->hopper) {
        return TENSOR_NONE;
    }
    const double waves = estimate_waves(p, cores->multiprocessors);
    const double fused = (double)p->count * estimate_fused(p, cores->multiprocessors);
    const bool takes_fused = fused < waves_share * waves - waves_less;
    return (takes_fused ? fused : waves) >= cycles ? TENSOR_NONE
           : takes_fused                           ? TENSOR_FUSED
                                                   : TENSOR_WAVES;
}

int64_t plan_tensor_batch(TensorRung rung, const Sgemm *batch)
{
    if (rung == TENSOR_MMA) {
        return 1; /* it takes no batches */
    }
    const int64_t most = (int64_t)512 << 20; /* bytes of fp16 pairs */
    const int64_t M = ceil_div(batch->C.rows, TILE) * TILE,
                  N = ceil_div(batch->C.cols, TILE) * TILE;
    const int64_t rows = rung == TENSOR_WAVES ? M + N : M < N ? M : N;
    const int64_t pairs = 4 * rows * ceil_div(batch->A.cols, DEPTH) * DEPTH;
    const int64_t count = pairs < most ? most / pairs : 1;
    return count < BATCH_OF_LAUNCH ? count : BATCH_OF_LAUNCH;
}
