/* Products of a list that the rung `fused` computes in one launch: a mixture of experts, for
 * example. Each has its own number of rows, tokens of an expert, and its own matrix. */
#ifndef SGEMM_KERNELS_FUSED_GROUPS_H
#define SGEMM_KERNELS_FUSED_GROUPS_H

#include "../../base/sgemm.h"
#include "../../base/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most groups of a launch. They are the kernel's parameter, so a launch copies no memory and
 * works in every stream. Parameters may have 4 KB with the drivers of CUDA 12. */
enum { FUSED_GROUPS_MOST = 160, FUSED_GROUPS_UNIT = 16 /* bytes */ };

/* Where each group begins, and where the last one ends. */
typedef struct {
    int count;
    int cols[FUSED_GROUPS_MOST + 1];                /* of B and C, if all groups were one product */
    int tiles[FUSED_GROUPS_MOST + 1];               /* of C */
    int A[FUSED_GROUPS_MOST], B[FUSED_GROUPS_MOST]; /* units of memory from whole.A and whole.B */
    int C[FUSED_GROUPS_MOST];                       /* floats from whole.C */
} GroupStarts;

/* The products, transposed if necessary: each has a matrix A of its own, of the same size, and some
 * columns of B and C. */
typedef struct {
    Sgemm whole; /* B and C have the columns of all groups. A begins at the lowest address */
    int places;  /* of A, in units, up to the last one */
    bool transposed;
    int width; /* of a tile of C */
    double cycles;
    GroupStarts starts;
} FusedGroups;

/* Finds the groups at the begin of a list. Returns how many there are; less than two: none. */
int fused_groups_find(const Sgemm *problems, int count, FusedGroups *groups);

/* Chooses the width of a tile, and estimates the time. */
void fused_groups_plan(FusedGroups *groups, int multiprocessors);

/* For x86-64 the host compiles the kernel twice (launch.h), and each copy of `auto` calls its
 * own. */
#ifdef __CUDACC__
#define launch_fused_groups launch_fused_groups_cuda
#elif defined(SGEMM_FUSED)
#define launch_fused_groups launch_fused_groups_cpu_fused
#else
#define launch_fused_groups launch_fused_groups_cpu
#endif
Status launch_fused_groups(const FusedGroups *groups, const Launch *where);

#ifdef __cplusplus
}
#endif
#endif
