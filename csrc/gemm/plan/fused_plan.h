/* How the rung `fused` divides a product, and how long it takes: for its launcher, and for the
 * choice of `auto`. */
#ifndef SGEMM_KERNELS_FUSED_PLAN_H
#define SGEMM_KERNELS_FUSED_PLAN_H

#include <math.h>

#include "../../base/sgemm.h"
#include "../kernel/tma_rows.h"
#include "constants.h"

typedef struct {
    bool copies;   /* A first, to where TMA can load it */
    int width;     /* of a tile of C */
    int slices;    /* of K */
    double cycles; /* estimated time */
} FusedPlan;

enum {
    FUSED_ROWS = 128,  /* of a tile of C */
    FUSED_CHUNK = 64,  /* steps of K with one scale */
    FUSED_WIDE = 128,  /* columns of a tile of C */
    FUSED_NARROW = 64, /* columns of a tile of C */
    FUSED_MOST_SLICES = 16,
    FUSED_SHORTEST_SLICE = 4, /* in chunks */
    FUSED_OVERLAPPED = 12     /* chunks of a tile, up to which a block computes several tiles */
};

/* The operand that is split in advance, B, is the smaller one, unless the sizes are similar:
 * otherwise the transposed problem is computed. */
static inline bool fused_transposes(const Sgemm *p)
{
    return p->C.cols > 2 * p->C.rows;
}

/* Rows from one matrix A of the batch to the next, if TMA can load all of them as one matrix; -1 if
 * it cannot. */
static inline int64_t fused_rows_apart(const Sgemm *p)
{
    const Matrix *const A = &p->A;
    const int64_t last = A->batch_stride ? p->count - 1 : 0;
    const int64_t apart = last && A->row_stride > 0 ? A->batch_stride / A->row_stride : 0;
    const bool loads = tma_can_load(A) && apart >= 0 &&
                       (last == 0 || apart * A->row_stride == A->batch_stride) &&
                       apart <= (INT32_MAX - A->rows) / (last ? last : 1);
    return loads ? apart : -1;
}

/* The estimated cycles of the product alone, with these tiles and slices. */
static inline double fused_product_cycles(const Sgemm *p, int width, int slices,
                                          int multiprocessors)
{
    const int64_t tiles = ceil_div(p->C.rows, FUSED_ROWS) * ceil_div(p->C.cols, width) * p->count;
    const int64_t chunks = ceil_div(p->A.cols, FUSED_CHUNK);
    const double results = (double)FUSED_ROWS * (double)width;
    const double of_chunk = width == FUSED_WIDE ? fused_wide_chunk : fused_narrow_chunk;
    const double work_items = (double)ceil_div(tiles * slices, multiprocessors);
    const int64_t pitch = p->C.col_stride == 1 ? p->C.row_stride : p->C.col_stride;
    const double stored = fused_store * results * (pitch % 4 == 0 ? 1 : fused_unaligned);
    const double of_work =
        fused_work + of_chunk * (double)ceil_div(chunks, slices) + (slices == 1 ? stored : 0);
    const double sums = 8 * (double)tiles * results;
    const double of_slice = fused_slice + sums / (fused_splitk_reduce_rate * multiprocessors);
    return work_items * of_work + (slices == 1 ? 0 : fused_adding + slices * of_slice);
}

/* The plan with the lowest estimated time. If transposing helps, the caller has transposed. */
static inline FusedPlan plan_fused(const Sgemm *p, int multiprocessors)
{
    FusedPlan plan = {fused_rows_apart(p) < 0, FUSED_WIDE, 1, 0};
    const int64_t chunks = ceil_div(p->A.cols, FUSED_CHUNK);
    plan.cycles = fused_product_cycles(p, plan.width, plan.slices, multiprocessors);
    for (int slices = 1; slices <= FUSED_MOST_SLICES; ++slices) {
        for (int width = FUSED_NARROW; width <= FUSED_WIDE; width += FUSED_WIDE - FUSED_NARROW) {
            const double cycles = fused_product_cycles(p, width, slices, multiprocessors);
            const bool is_long = slices == 1 || slices * FUSED_SHORTEST_SLICE <= chunks;
            if (is_long && cycles < plan.cycles) {
                plan.width = width;
                plan.slices = slices;
                plan.cycles = cycles;
            }
        }
    }
    const double M = (double)p->C.rows, N = (double)p->C.cols, K = (double)p->A.cols,
                 count = (double)p->count;
    /* The product overlaps with reading A and writing C. */
    const double memory = 4 * count * M * (K + N) / fused_memory;
    plan.cycles = pow(pow(plan.cycles, 4) + pow(memory, 4), 0.25);
    const double matrices_of_a = p->A.batch_stride ? count : 1,
                 matrices_of_b = p->B.batch_stride ? count : 1;
    const double copied = 8 * matrices_of_a * M * K; /* bytes read and written */
    const double padded =
        (double)(ceil_div(p->C.cols, FUSED_ROWS) * FUSED_ROWS) * (double)(chunks * FUSED_CHUNK);
    const double of_step = p->B.row_stride == 1 ? 0 : fused_mn_major;
    plan.cycles += fused_start + of_step * (double)(chunks * FUSED_CHUNK) +
                   12 * matrices_of_b * padded / fused_memory +
                   (plan.copies ? fused_copy + copied / fused_copying : 0);
    return plan;
}

#endif
