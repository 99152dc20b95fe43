/* How `invariant` divides a product, after it is transposed: A has the weights, B the tokens. The
 * slices of K decide the bits, so they follow from the weights alone. */
#ifndef SGEMM_KERNELS_INVARIANT_PLAN_H
#define SGEMM_KERNELS_INVARIANT_PLAN_H

#include "../../base/variant.h"
#include "fused_plan.h"

typedef struct {
    bool low;      /* tiles of 64 x 64, two on a multiprocessor; otherwise 128 x 128 */
    bool parallel; /* a block computes one slice; otherwise it computes all, one after the other */
} InvariantPlan;

enum {
    INVARIANT_ROWS = 64,          /* of a low tile */
    INVARIANT_BLOCKS = 132,       /* fill the GPU that slices are chosen for */
    INVARIANT_SHORTEST_SLICE = 8, /* in chunks */
    INVARIANT_MOST_SLICES = 64,
    /* Estimated times in chunks: to begin and end a block, and to add a slice. */
    INVARIANT_OF_BLOCK = 2,
    INVARIANT_OF_SLICE = 1
};

/* Slices of K: with these, few tokens fill the GPU soonest. */
static inline int invariant_slices(int64_t rows, int64_t depth)
{
    const int64_t tiles = ceil_div(rows, INVARIANT_ROWS), chunks = ceil_div(depth, FUSED_CHUNK);
    const int64_t most = chunks / INVARIANT_SHORTEST_SLICE;
    int best = 1;
    int64_t least = INT64_MAX;
    for (int slices = 1; slices == 1 || (slices <= most && slices <= INVARIANT_MOST_SLICES);
         ++slices) {
        const int64_t of_block = ceil_div(chunks, slices) + INVARIANT_OF_BLOCK;
        const int64_t time =
            ceil_div(tiles * slices, INVARIANT_BLOCKS) * of_block + slices * INVARIANT_OF_SLICE;
        if (time < least) {
            least = time;
            best = slices;
        }
    }
    return best;
}

/* The estimated cycles of the product alone. */
static inline double invariant_cycles(const Sgemm *p, InvariantPlan plan, int slices,
                                      int multiprocessors)
{
    const int rows = plan.low ? (int)INVARIANT_ROWS : (int)FUSED_ROWS;
    const int cols = plan.low ? FUSED_NARROW : FUSED_WIDE;
    const int64_t tiles = tiles_of_one(p, false, rows, cols) * p->count;
    const double chunks = (double)ceil_div(p->A.cols, FUSED_CHUNK);
    const double results = (double)rows * cols;
    const double works = (double)ceil_div(tiles * (plan.parallel ? slices : 1), multiprocessors);
    const double side_by_side = plan.low && works > 1 ? 2 : 1;
    const double of_chunk = !plan.low          ? fused_wide_chunk
                            : side_by_side > 1 ? fused_narrow_chunk / side_by_side
                                               : invariant_low_chunk;
    if (!plan.parallel || slices == 1) {
        const double of_slice = invariant_slice * results;
        return works * (fused_work / side_by_side + of_chunk * chunks + fused_store * results +
                        of_slice * (slices - 1));
    }
    const double sums = 8 * (double)tiles * results;
    return works * (fused_work / side_by_side + of_chunk * ceil(chunks / slices)) + fused_adding +
           slices * (fused_slice + sums / (fused_splitk_reduce_rate * multiprocessors));
}

/* The plan with the lowest estimated time, which changes no bits. */
static inline InvariantPlan plan_invariant(const Sgemm *p, int slices, int multiprocessors)
{
    static const InvariantPlan plans[] = {{true, true}, {false, true}, {false, false}};
    InvariantPlan best = plans[0];
    double least = INFINITY;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; ++i) {
        const double cycles = invariant_cycles(p, plans[i], slices, multiprocessors);
        if (cycles < least) {
            least = cycles;
            best = plans[i];
        }
    }
    return best;
}

/* The most products of a launch: their fp16 pairs, copies and sums take memory. */
static inline int64_t invariant_batch(const Sgemm *p, int slices)
{
    const int64_t most = (int64_t)512 << 20; /* bytes */
    const int64_t rows = ceil_div(p->C.rows, FUSED_ROWS) * FUSED_ROWS;
    const int64_t cols = ceil_div(p->C.cols, FUSED_WIDE) * FUSED_WIDE;
    const int64_t depth = ceil_div(p->A.cols, FUSED_CHUNK) * FUSED_CHUNK;
    const int64_t copied = fused_lines_apart(p) < 0 ? rows : 0;
    const double sums = (double)rows * (double)cols * slices;
    const double each = 4 * ((double)(cols + copied) * (double)depth + sums);
    const double count = fmin((double)most / each, BATCH_OF_LAUNCH);
    return count < 1 ? 1 : (int64_t)count;
}

#endif
