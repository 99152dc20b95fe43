/* How a product is divided over a GPU: into tiles of C, and parts of K. */
#ifndef SGEMM_PLAN_H
#define SGEMM_PLAN_H

#include <stdbool.h>

#include "sgemm.h"
#include "status.h"
#include "variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tilings that splitk's kernel is compiled for: BM, BN, BK, WM, WN, TM, TN as in
 * kernels/09_tiles.h, how many blocks a multiprocessor shall have room for, and which share of its
 * multiply-adds so many reach. */
#define TILINGS(TILING)                                                                            \
    TILING(128, 256, 32, 64, 64, 8, 16, 1, 0.94)                                                   \
    TILING(128, 128, 16, 64, 64, 8, 16, 2, 0.94)                                                   \
    TILING(64, 128, 16, 64, 64, 8, 16, 4, 0.85)                                                    \
    TILING(64, 64, 16, 64, 64, 8, 16, 6, 0.70)                                                     \
    TILING(32, 64, 16, 32, 64, 8, 8, 8, 0.67)                                                      \
    TILING(16, 128, 16, 16, 128, 8, 8, 5, 0.50)                                                    \
    TILING(8, 256, 16, 8, 256, 8, 8, 3, 0.28)                                                      \
    TILING(4, 128, 32, 4, 128, 4, 4, 3, 0.17)                                                      \
    TILING(32, 32, 16, 32, 32, 4, 8, 8, 0.64)

#define ONE(...) +1
enum { TILING_COUNT = 0 TILINGS(ONE) };
#undef ONE

/* In place of a tiling: the rows of C by matrix-vector products, kernels/auto/gemv.h, and how many
 * columns its blocks have where B lies by columns. */
enum { GEMV = TILING_COUNT, GEMV_COLUMNS = 16 };

typedef struct {
    int tiling;   /* an index in TILINGS, or GEMV */
    int splits;   /* parts of K, at least 1 */
    bool swapped; /* compute the transpose of C, as the transpose of B times that of A */
    int width;    /* columns of gemv's blocks where its B lies by rows: a power of two, 16 to 128 */
    double cycles; /* that it takes, by the estimate; gemv has none */
} Plan;

/* The plan that takes the least time by an estimate, on a GPU of so many multiprocessors. The
 * estimate was fitted to times on an H100. */
Plan plan_any(const Sgemm *problem, int multiprocessors);

/* The same for the first tiling, not swapped: how many parts K should have. */
Plan plan_splits(const Sgemm *problem, int multiprocessors);

/* Whether a row-major copy of B first is worth its cost: where B lies by columns, and is used by
 * many rows of C. Where its columns are no multiple of four, the blocks at its edge would copy
 * float by float all the same, and take longer than the copy saves. */
bool plan_copies_B(const Sgemm *problem);

/* K from which on products by halves can be certified: shorter ones are computed in float32. */
enum { HALVES_SHORTEST = 256 };

/* Whether tensor cores take less time than plan_any's plan, on a GPU of so many multiprocessors: by an
 * estimate of what they take where few results have to be computed in float32 after all. */
bool plan_loses_to_tensor_cores(const Plan *plan, const Sgemm *problem, int multiprocessors);

/* Compute a product by a plan: kernels/auto/auto.cu. */
Status launch_plan_cpu(const Sgemm *problem, const Launch *where, const Plan *plan);
Status launch_plan_cuda(const Sgemm *problem, const Launch *where, const Plan *plan);

#ifdef __cplusplus
}
#endif
#endif
