/* Plans: how a product is divided over a GPU, and an estimate of how long that takes. */
#ifndef SGEMM_PLAN_H
#define SGEMM_PLAN_H

#include <stdbool.h>

#include "../core/sgemm.h"
#include "../core/status.h"
#include "../core/variant.h"
#include "tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A plan's kernel: an index in TILES, or one of these. GEMV computes matrix-vector products
 * (gemv.h), DIRECT has no tiles (direct.h), and LARGEST is the rung tma. */
#define ONE(...) +1
enum { TILE_COUNT = 0 TILES(ONE), GEMV = TILE_COUNT, DIRECT, LARGEST };
#undef ONE

typedef struct {
    int kernel;
    int splits;      /* blocks that divide K for the same results, at least 1 */
    bool cluster;    /* these blocks are a cluster; otherwise they leave their sums in memory */
    bool transposed; /* compute the transpose of C */
    int width;       /* columns of a block of GEMV, a power of two */
    double cycles;   /* estimated time, in cycles of a multiprocessor */
} Plan;

/* Blocks and threads of the largest cluster. All GPUs with clusters run 8 blocks. */
enum { CLUSTER_MOST_BLOCKS = 8, CLUSTER_MOST_THREADS = 1024 };

/* DIRECT: each thread loads so many steps of K at once. Several threads share a result if there
 * are few results, or if K is long. */
enum { DIRECT_AT_ONCE = 4, DIRECT_MOST = 1 << 24 };
#define DIRECT_SHARERS(results, K) ((results) <= 1024 ? 32 : (K) <= DIRECT_AT_ONCE ? 1 : 8)

/* GEMV: its most rows of C; rows and threads (a logarithm) of a block; and its most columns. */
enum { GEMV_MOST_ROWS = 64, GEMV_ROWS = 8, GEMV_THREAD_BITS = 9, GEMV_WIDEST_BY_COLUMNS = 64 };
#define GEMV_WIDEST_BY_ROWS(rows) ((rows) < GEMV_ROWS ? 128 : 64)
/* Float4 loads of B in flight for each thread. */
#define GEMV_DEEP(rows, staged) ((rows) < GEMV_ROWS || (staged) ? 4 : 2)
/* Blocks that fit on a multiprocessor, in general and if all loads of A and B are float4. */
#define GEMV_RESIDENT(rows) ((rows) < 4 ? 2 : 1)
#define GEMV_RESIDENT_BY_QUADS(rows) ((rows) < 2 ? 2 : 1)
/* Steps of K of A's rows that shared memory holds, if they have to be transposed there. */
#define GEMV_STAGED(rows) (16384 / (GEMV_RESIDENT(rows) * (rows)))
/* A block's columns are so far apart that all of them have the same alignment. */
#define GEMV_APART(stride) ((stride) % 4 == 0 ? 1 : (stride) % 2 == 0 ? 2 : 4)

/* The constants of the estimate, fitted to measured times of an H100 (benchmarks/plan_model.py).
 * For other GPUs only the number of multiprocessors changes, until plan_times.py --keep fits
 * them there. */
#define PLAN_CONSTANTS(CONSTANT)                                                                   \
    CONSTANT(launch, 7060)       /* cycles from a cold launch until tiles are loaded */            \
    CONSTANT(across, 2.67)       /* issue slots to copy a float, contiguous across K */            \
    CONSTANT(along, 5.7)         /* issue slots to copy a float, contiguous along K */             \
    CONSTANT(latency, 40.2)      /* cycles that a step of K of a lone warp waits */                \
    CONSTANT(store, 12.9)        /* issue slots to store one result of each thread */              \
    CONSTANT(draining, 11.7)     /* bytes per cycle at which a multiprocessor's results leave */   \
    CONSTANT(from_memory, 13.3)  /* bytes per cycle of memory for each multiprocessor */           \
    CONSTANT(joining, 2250)      /* cycles to add the sums of a cluster */                         \
    CONSTANT(arriving, 5120)     /* cycles until the last of several blocks sees their sums */     \
    CONSTANT(again, 1630)        /* cycles for a second such step, where there are many */         \
    CONSTANT(collecting, 18.2)   /* bytes per cycle that the last block adds */                    \
    CONSTANT(direct_round, 986)  /* DIRECT: cycles for one round of loads */                       \
    CONSTANT(direct_step, 0.404) /* DIRECT: cycles per thread and round of a multiprocessor */     \
    CONSTANT(gemv_launch, 4770)  /* GEMV: cycles of a cold launch */                               \
    CONSTANT(gemv_block, 3830)   /* GEMV: cycles for each block after another */                   \
    CONSTANT(gemv_filling, 1050) /* GEMV: cycles for each block side by side */                    \
    CONSTANT(gemv_round, 741)    /* GEMV: cycles for one round of loads */                         \
    CONSTANT(gemv_staged, 0.326) /* GEMV: cycles to transpose a float of A in shared memory */     \
    CONSTANT(gemv_unshared, 250) /* GEMV: cycles to read a float of A for one column, B by rows */

#define CONSTANT(name, value) double name;
typedef struct {
    PLAN_CONSTANTS(CONSTANT)
    double slots[TILE_COUNT]; /* see TILES */
} PlanConstants;
#undef CONSTANT

extern const PlanConstants plan_fitted;

/* Uses these constants on GPUs of a model. To be called before the first product there. */
void plan_keep(const char *model, const PlanConstants *constants);
const PlanConstants *plan_constants(const char *model);

/* A as rows along K, or B as columns along K. */
typedef struct {
    bool along_K;     /* contiguous along K; otherwise across it */
    bool aligned;     /* begins on 16 bytes */
    bool has_pitch;   /* its other stride is above 0, */
    int8_t remainder; /* and this is that stride modulo 4 */
} PlanOperand;

/* All that a plan depends on of a product. */
typedef struct {
    int64_t M, N, K;
    PlanOperand A, B;
    bool quads; /* C is written in aligned float4 and not read */
} PlanShape;

PlanShape plan_shape(const Sgemm *problem); /* with zeros as padding, so that bytes compare */

/* What a plan depends on beside the product. */
typedef struct {
    int multiprocessors;
    int widest_cluster; /* in blocks; 1 if the device runs no clusters */
    int shared_bytes;   /* of a block, at most */
    const PlanConstants *constants;
} PlanDevice;

/* Whether a plan's kernels compute this product on this device. The planner proposes no other
 * plan, and the launcher launches no other. */
bool plan_supports(const Plan *plan, const Sgemm *problem, const PlanDevice *device);

/* The plan that every device with asynchronous copies supports, for every product. */
Plan plan_fallback(void);

/* The estimated cycles of a plan. */
double plan_estimate(const Plan *plan, const Sgemm *problem, const PlanDevice *device);

/* All plans between which plan_choose chooses; returns how many. */
enum { PLANS_MOST = 256 };
int plan_list(const PlanShape *shape, const PlanDevice *device, Plan plans[PLANS_MOST]);

/* The plan with the least estimate. Each thread remembers its last plans by shape, layout,
 * alignment and device. */
Plan plan_choose(const Sgemm *problem, const PlanDevice *device);

/* Sums of many splits are added in groups, and then the sums of the groups: the size of a group,
 * or 1. */
int plan_group(int64_t splits);

/* Whether tensor cores take less than `cycles`. */
bool plan_loses_to_tensor_cores(double cycles, const Sgemm *problem, int multiprocessors);

/* What plans may use on a device; and a product by one plan (auto.cu). */
Status plan_device_cpu(const Launch *where, PlanDevice *device);
Status plan_device_cuda(const Launch *where, PlanDevice *device);
Status launch_plan_cpu(const Sgemm *problem, const Launch *where, const Plan *plan);
Status launch_plan_cuda(const Sgemm *problem, const Launch *where, const Plan *plan);

#ifdef __cplusplus
}
#endif
#endif
