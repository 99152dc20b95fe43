/* Plans for batches of small products: which kernel computes them, and how a block divides its
 * matrices, or its tile of one matrix, among its threads. A plan depends on the PlanShape and the
 * device only. */
#ifndef SGEMM_SMALL_BATCH_PLAN_H
#define SGEMM_SMALL_BATCH_PLAN_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most threads of a block; stages of its pipeline; the most rows and columns of a tile of C;
 * and the registers of a thread with 8 x 8 and with 4 x 4 results. */
enum {
    SMALL_BATCH_THREADS = 256,
    SMALL_BATCH_STAGES = 2,
    SMALL_BATCH_TILE = 128,
    SMALL_BATCH_REGISTERS_8 = 128,
    SMALL_BATCH_REGISTERS_4 = 80,
};

/* How the threads of a block copy a tile of each of its matrices between memory and shared memory.
 * A line is contiguous in memory and consists of units: floats or float4s. */
typedef struct {
    bool float4;
    bool k_major;           /* lines are along K (not used for C) */
    int units;              /* of a line */
    int matrices, lines;    /* that all threads copy at once: some lines of one, or all of some */
    int unit, line, matrix; /* distances in shared memory, in floats */
    int piece;              /* if packed: the floats before each gap; 0: no gaps */
    int bytes;              /* in shared memory */
} BatchCopy;

typedef struct {
    bool packed;                  /* packed_batch.h; otherwise small_batch.h */
    int thread_tile;              /* 8 or 4: a thread computes 8 x 8 or 4 x 4 results */
    int matrices;                 /* of a block, at once; 1 if C has several tiles */
    int rows, cols;               /* of the tile of C */
    int tiles_down, tiles_across; /* of a matrix */
    int thread_rows, thread_cols; /* threads of a matrix */
    int slices;                   /* of K, for neighbouring threads: a power of two; if packed */
    int threads;                  /* of a block */
    int depth;                    /* K chunk: a multiple of 4, or K if packed */
    BatchCopy A, B, C;            /* C is collected in shared memory if thread_tile is 4 */
    int shared_bytes;             /* of a block */
    unsigned tasks;               /* tiles, or groups of `matrices` matrices */
    int blocks;                   /* each computes every blocks-th task */
} SmallBatchPlan;

/* Whether the kernels can compute this batch on this device, and faster than others. */
bool small_batch_supports(const PlanShape *shape, const PlanDevice *device);

/* The plan for a batch that the kernels support. */
SmallBatchPlan small_batch_plan(const PlanShape *shape, const PlanDevice *device);

/* The estimated cycles of that plan. */
double small_batch_cycles(const PlanShape *shape, const PlanDevice *device);

#ifdef __cplusplus
}
#endif
#endif
