#include "plan.h"

#include <math.h>

/* Constants for split-fp16 products on tensor cores, fitted to an H200: for `waves` float32
 * multiply-adds per cycle and multiprocessor, cycles of all launches, and cycles to check and store
 * a result. */
static const double tensor_rate = 565, tensor_start = 19000, tensor_store = 1.4;

/* For `fused`, fitted to an H100: cycles of all launches; of a block to load its first tiles and to
 * store its results; of a K chunk of a tile of 128 rows, by its width; and cycles to begin and end
 * the kernel that adds slices of K. */
static const double fused_start = 9000, fused_block = 6000, fused_adding = 5000;
static const struct {
    int width;
    double of_chunk;
} fused_tiles[] = {{64, 1500}, {128, 2350}};

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
    const int64_t tiles = ceil_div(p->C.rows, TILE) * ceil_div(p->C.cols, TILE);
    const double waves = (double)ceil_div(tiles, multiprocessors);
    return tensor_start + splitting(p->C.rows, depth) + splitting(p->C.cols, depth) +
           waves * TILE * TILE * (depth / tensor_rate + tensor_store);
}

/* The rung chooses its tiles and slices of K likewise (17_fused.cu). */
static double estimate_fused(const Sgemm *p, int multiprocessors)
{
    enum { MOST_SLICES = 16, SHORTEST_SLICE = 4 };
    const bool transposed = p->C.cols > 2 * p->C.rows;
    const int64_t M = transposed ? p->C.cols : p->C.rows, N = transposed ? p->C.rows : p->C.cols;
    const int64_t chunks = ceil_div(p->A.cols, DEPTH);
    const double bandwidth = plan_fitted.from_memory * FITTED;
    double product = INFINITY;
    for (size_t i = 0; i < sizeof fused_tiles / sizeof *fused_tiles; ++i) {
        const int64_t tiles = ceil_div(M, TILE) * ceil_div(N, fused_tiles[i].width);
        for (int slices = 1; slices <= MOST_SLICES; ++slices) {
            if (slices > 1 && slices * SHORTEST_SLICE > chunks) {
                break;
            }
            const double waves = (double)ceil_div(tiles * slices, multiprocessors);
            const double of_block =
                fused_block + fused_tiles[i].of_chunk * (double)ceil_div(chunks, slices);
            const double adding =
                slices == 1 ? 0
                            : fused_adding + 4 * (double)M * (double)N * (slices + 1) / bandwidth;
            product = fmin(product, waves * of_block + adding);
        }
    }
    const double memory = 4 * ((double)M * (double)p->A.cols + (double)M * (double)N) / bandwidth;
    const double both = pow(pow(product, 4) + pow(memory, 4), 0.25); /* they mostly overlap */
    return fused_start + splitting(N, (double)(chunks * DEPTH)) + both;
}

TensorRung plan_tensor_rung(double cycles, const Sgemm *p, int multiprocessors)
{
    if (p->A.cols < SPLIT_FP16_MIN_K) {
        return TENSOR_NONE;
    }
    const double waves = estimate_waves(p, multiprocessors);
    const double fused = estimate_fused(p, multiprocessors);
    return fmin(waves, fused) >= cycles ? TENSOR_NONE : fused < waves ? TENSOR_FUSED : TENSOR_WAVES;
}
