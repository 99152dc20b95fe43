/* Plans for batches of small products (small_batch.h): the tile of C that a block computes, or the
 * matrices that it computes at once, and how it copies them to shared memory. */
#ifndef SGEMM_SMALL_BATCH_PLAN_H
#define SGEMM_SMALL_BATCH_PLAN_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most threads of a block; stages of the pipeline; and registers of a thread with 8 x 8 or 4 x
 * 4 results. A tile of C has at most SMALL_BATCH_TILE rows and columns. */
enum {
    SMALL_BATCH_THREADS = 256,
    SMALL_BATCH_STAGES = 2,
    SMALL_BATCH_REGISTERS_8 = 128,
    SMALL_BATCH_REGISTERS_4 = 80,
    SMALL_BATCH_TILE = 128,
};

/* How the threads of a block copy a tile of each of its matrices between memory and shared memory.
 * A line is contiguous in memory and consists of units: floats or float4. */
typedef struct {
    bool float4;
    bool k_major;                  /* lines are along K (C has none) */
    int units;                     /* of a line */
    int matrices, lines;           /* that all threads copy at once; one of them is 1 or all */
    int unit, line, matrix, bytes; /* in shared memory: distances in floats, and the total */
} BatchCopy;

typedef struct {
    bool packed;                   /* packed_batch.h */
    int thread_tile;               /* 8 or 4: a thread computes 8 x 8 or 4 x 4 results */
    bool a_k_major, b_k_major;     /* in shared memory */
    int matrices;                  /* of a block, at once */
    int rows, cols;                /* of its tile of C; more than one tile if matrices is 1 */
    int thread_rows, thread_cols;  /* threads of a matrix */
    int threads;                   /* of a block */
    int depth;                     /* K chunk, a multiple of 4 */
    int tiles_down, tiles_across;  /* of a matrix */
    BatchCopy A, B, C;             /* C is staged in shared memory if thread_tile is 4 */
    int shared_bytes;              /* of a block */
    unsigned tasks;                /* a tile, or `matrices` matrices */
    int blocks;                    /* each computes every blocks-th task */
    int resident;                  /* blocks on a multiprocessor */
} SmallBatchPlan;

/* Whether the kernel can compute this batch on this device. */
bool small_batch_supports(const Sgemm *problem, const PlanDevice *device);

/* The plan for a batch that the kernel supports. It depends on sizes, layouts, alignment, the count,
 * and the device. */
SmallBatchPlan small_batch_plan(const Sgemm *problem, const PlanDevice *device);

/* The estimated time of a plan in cycles of a multiprocessor, as Plan.cycles. */
double small_batch_cycles(const SmallBatchPlan *plan, const Sgemm *problem,
                          const PlanDevice *device);

#ifdef SMALL_BATCH_TUNING
typedef struct {
    int thread_tile, threads, stage_bytes;
} SmallBatchTuning;
SmallBatchPlan small_batch_plan_tuned(const Sgemm *problem, const PlanDevice *device,
                                      SmallBatchTuning tuning);
#endif

#ifdef __cplusplus
}
#endif
#endif
