/* How the rung `fused` divides a product, and how long it takes: for its launcher, and for the
 * choice of `auto`. */
#ifndef SGEMM_KERNELS_FUSED_PLAN_H
#define SGEMM_KERNELS_FUSED_PLAN_H

#include <math.h>

#include "../../base/sgemm.h"
#include "../kernel/lower_tiles.h"
#include "../kernel/tma_rows.h"
#include "constants.h"

typedef struct {
    bool copies;   /* A first, to where TMA can load it */
    int width;     /* of a tile of C */
    int slices;    /* of K, in the tiles that are divided */
    int64_t whole; /* tiles that are not divided: the first ones of all C */
    double cycles; /* estimated time */
} FusedPlan;

enum {
    FUSED_ROWS = 128,  /* of a tile of C */
    FUSED_CHUNK = 64,  /* steps of K with one scale */
    FUSED_WIDE = 128,  /* columns of a tile of C */
    FUSED_NARROW = 64, /* columns of a tile of C */
    FUSED_MOST_SLICES = 64,
    FUSED_MOST_WAVES = 16,   /* of slices of K */
    FUSED_SHORTEST_SLICE = 4 /* in chunks */
};

/* The operand that is split in advance, B, is the smaller one, unless the sizes are similar:
 * otherwise the transposed problem is computed. */
static inline bool fused_transposes(const Sgemm *p)
{
    return p->C.cols > 2 * p->C.rows;
}

/* Whether A is read as lines along its rows, not along K. */
static inline bool fused_is_mn_major(const Sgemm *p)
{
    return p->A.col_stride != 1;
}

/* A as TMA sees it: its lines are contiguous. */
static inline Matrix fused_lines(const Sgemm *p)
{
    return fused_is_mn_major(p) ? matrix_transposed(&p->A) : p->A;
}

/* Lines from one matrix A of the batch to the next, if TMA can load all of them as one matrix; -1
 * if it cannot. If lines are steps of K, the last K chunk must not reach into the next matrix. */
static inline int64_t fused_lines_apart(const Sgemm *p)
{
    const Matrix X = fused_lines(p);
    const int64_t last = X.batch_stride ? p->count - 1 : 0;
    const int64_t apart = last && X.row_stride > 0 ? X.batch_stride / X.row_stride : 0;
    const bool loads = tma_can_load(&X) && apart >= 0 &&
                       (last == 0 || apart * X.row_stride == X.batch_stride) &&
                       (last == 0 || !fused_is_mn_major(p) || X.rows % FUSED_CHUNK == 0) &&
                       apart <= (INT32_MAX - X.rows) / (last ? last : 1);
    return loads ? apart : -1;
}

/* The factor on storing a result. A transposed C is stored in single floats, too. */
static inline double store_factor(const Sgemm *p)
{
    return p->C.col_stride == 1 && p->C.row_stride % 4 == 0 ? 1 : tensor_store_unaligned;
}

/* The factor on storing the results of a symmetric product at two places. */
static inline double mirrored_factor(const Sgemm *p, bool symmetric)
{
    const double bytes = 4 * (double)p->count * (double)p->C.rows * (double)p->C.cols;
    return !symmetric ? 1 : bytes > tensor_l2 ? tensor_mirrored : tensor_mirrored_in_l2;
}

/* The number of tiles of all C, with the plan's width. */
static inline int64_t fused_tiles(const Sgemm *p, bool symmetric, const FusedPlan *plan)
{
    return tiles_of_one(p, symmetric, FUSED_ROWS, plan->width) * p->count;
}

/* The estimated cycles of the product alone. `tiles` are all tiles; `factor` multiplies the time to
 * store a result. */
static inline double fused_product_cycles(const Sgemm *p, int64_t tiles, const FusedPlan *plan,
                                          double factor, int multiprocessors)
{
    const int64_t chunks = ceil_div(p->A.cols, FUSED_CHUNK), divided = tiles - plan->whole;
    const double results = (double)FUSED_ROWS * (double)plan->width;
    const double of_chunk = plan->width == FUSED_WIDE ? fused_wide_chunk : fused_narrow_chunk;
    const double of_tile = fused_work + of_chunk * (double)chunks + fused_store * results * factor;
    const double of_whole = (double)ceil_div(plan->whole, multiprocessors) * of_tile;
    if (divided == 0) {
        return of_whole;
    }
    const double of_part = fused_work + of_chunk * (double)ceil_div(chunks, plan->slices);
    const double sums = 8 * (double)divided * results;
    const double of_slice = fused_slice + sums / (fused_splitk_reduce_rate * multiprocessors);
    return of_whole + (double)ceil_div(divided * plan->slices, multiprocessors) * of_part +
           fused_adding + (plan->whole > 0 ? fused_last_wave : 0) + plan->slices * of_slice;
}

/* The elements of B as it is split: padded to whole tiles. */
static inline double fused_padded(const Sgemm *p)
{
    return (double)(ceil_div(p->C.cols, FUSED_ROWS) * FUSED_ROWS) *
           (double)(ceil_div(p->A.cols, FUSED_CHUNK) * FUSED_CHUNK);
}

/* The cycles that the split of an MN-major B takes longer than that of a K-major one. */
static inline double fused_strided(const Sgemm *p)
{
    const double steps = fused_mn_major * (double)(ceil_div(p->A.cols, FUSED_CHUNK) * FUSED_CHUNK);
    return p->B.row_stride == 1       ? 0
           : p->B.row_stride % 4 == 0 ? fmin(steps, fused_second_split)
                                      : steps;
}

/* The estimated cycles of a product, given those of all tiles. It overlaps with reading A and
 * writing C, which are so many bytes. B is split before. */
static inline double fused_and_split(const Sgemm *p, double product, double bytes,
                                     double matrices_of_b)
{
    return pow(pow(product, 4) + pow(bytes / fused_memory, 4), 0.25) + fused_start +
           fused_strided(p) + 12 * matrices_of_b * fused_padded(p) / fused_memory;
}

/* A slice has at least four chunks. More slices than fill the GPU 16 times are never faster. */
static inline int fused_most_slices(const Sgemm *p, bool symmetric, int multiprocessors)
{
    const int64_t tiles = tiles_of_one(p, symmetric, FUSED_ROWS, FUSED_WIDE) * p->count;
    const int64_t by_tiles = FUSED_MOST_WAVES * (int64_t)multiprocessors / tiles;
    const int64_t by_chunks = ceil_div(p->A.cols, FUSED_CHUNK) / FUSED_SHORTEST_SLICE;
    const int64_t most = by_tiles < by_chunks ? by_tiles : by_chunks;
    return most < 1 ? 1 : most < FUSED_MOST_SLICES ? (int)most : FUSED_MOST_SLICES;
}

/* How many tiles are not divided along K. With one slice: all. If the slices of the last wave's
 * tiles fit in one wave: the tiles of all other waves, since dividing these, too, takes longer.
 * Otherwise none. */
static inline int64_t fused_whole_tiles(int64_t tiles, int slices, int multiprocessors)
{
    const int64_t last = tiles % multiprocessors;
    return slices == 1 ? tiles : last > 0 && last * slices <= multiprocessors ? tiles - last : 0;
}

/* The plan with the lowest estimated time. If transposing helps, the caller has transposed. With
 * `symmetric`, only the lower triangle is computed. */
static inline FusedPlan plan_fused(const Sgemm *p, bool symmetric, int multiprocessors)
{
    FusedPlan plan = {fused_lines_apart(p) < 0, FUSED_WIDE, 1, 0, INFINITY};
    const double factor = store_factor(p) * mirrored_factor(p, symmetric);
    const int most = fused_most_slices(p, symmetric, multiprocessors);
    for (int slices = 1; slices <= most; ++slices) {
        for (int width = FUSED_NARROW; width <= FUSED_WIDE; width += FUSED_WIDE - FUSED_NARROW) {
            FusedPlan other = {plan.copies, width, slices, 0, 0};
            const int64_t tiles = fused_tiles(p, symmetric, &other);
            other.whole = fused_whole_tiles(tiles, slices, multiprocessors);
            other.cycles = fused_product_cycles(p, tiles, &other, factor, multiprocessors) +
                           (symmetric && slices > 1 ? fused_adding_mirrored : 0);
            if (other.cycles < plan.cycles) {
                plan = other;
            }
        }
    }
    const double M = (double)p->C.rows, N = (double)p->C.cols, K = (double)p->A.cols,
                 count = (double)p->count;
    const double matrices_of_a = p->A.batch_stride ? count : 1,
                 matrices_of_b = p->B.batch_stride ? count : 1;
    const double copied = 8 * matrices_of_a * M * K; /* bytes read and written */
    plan.cycles = fused_and_split(p, plan.cycles, 4 * count * M * (K + N), matrices_of_b) +
                  (plan.copies ? fused_copy + copied / fused_copying : 0);
    return plan;
}

#endif
