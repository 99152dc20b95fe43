/* Plans: how a product is divided over a GPU, and an estimate of how long that takes. */
#ifndef SGEMM_PLAN_H
#define SGEMM_PLAN_H

#include <math.h>
#include <stdbool.h>

#include "../../base/sgemm.h"
#include "../../base/status.h"
#include "../../base/variant.h"
#include "constants.h"
#include "fused_groups.h"
#include "proofs.h"
#include "tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernel of a plan: an index in TILES, or one of these. GEMV computes matrix-vector products
 * (gemv.h), DOT uses no tiles (dot.h), and STREAMK is the rung tma. */
#define ONE(...) +1
enum { TILE_COUNT = 0 TILES(ONE), GEMV = TILE_COUNT, DOT, STREAMK, SMALL_BATCH };
#undef ONE

typedef struct {
    int kernel;
    int splits;      /* split-K: blocks that compute the same results, at least 1 */
    bool cluster;    /* these blocks are a cluster; otherwise they add their sums in memory */
    bool transposed; /* computes the transposed problem */
    bool mirrors;    /* computes the lower triangle of a symmetric C, and stores it twice */
    int width;       /* GEMV: columns of a block, a power of two */
    double cycles;   /* estimated time, in cycles of a multiprocessor */
} Plan;

/* Blocks and threads of the largest cluster. Every GPU with clusters supports 8 blocks. */
enum { CLUSTER_MOST_BLOCKS = 8, CLUSTER_MOST_THREADS = 1024 };

/* DOT: the threads of a block, the largest problem, and the steps of K in a thread's load. */
enum { DOT_THREADS = 128, DOT_MOST = 1 << 24 };
#define DOT_IN_FLIGHT(by_lines) ((by_lines) ? 8 : 4)

/* GEMV: the most rows of C; the rows of a block; log2 of its threads; and its most columns. If B is
 * read by rows, its most columns depend on the rows. */
enum { GEMV_MOST_ROWS = 64, GEMV_ROWS = 8, GEMV_THREAD_BITS = 9, GEMV_WIDEST_BY_COLUMNS = 64 };
#define GEMV_WIDEST_BY_ROWS(rows) ((rows) < GEMV_ROWS ? 128 : 64)
/* Float4 loads of B in flight for each thread. */
#define GEMV_DEEP(rows, staged) ((rows) < GEMV_ROWS || (staged) ? 4 : 2)
/* Resident blocks of a multiprocessor, in general and if all loads of A and B are float4. */
#define GEMV_RESIDENT(rows) ((rows) < 4 ? 2 : 1)
#define GEMV_RESIDENT_BY_FLOAT4(rows) ((rows) < 2 ? 2 : 1)
/* Steps of K of A that shared memory holds, if A has to be transposed there. */
#define GEMV_STAGED(rows) (16384 / (GEMV_RESIDENT(rows) * (rows)))
/* Distance between the columns of a block, so that all of them have the same alignment. */
#define GEMV_COLUMN_STEP(stride) ((stride) % 4 == 0 ? 1 : (stride) % 2 == 0 ? 2 : 4)

/* The constants of the estimate on CUDA cores (constants.h). Other GPUs get constants from their
 * data sheets, unless plan_times.py --keep has fitted the constants there. */
#define CONSTANT(name, value) double name;
typedef struct {
    PLAN_CONSTANTS(CONSTANT)
    double slots[TILE_COUNT]; /* see TILES */
} PlanConstants;
#undef CONSTANT

extern const PlanConstants plan_fitted;

/* Uses these constants on GPUs of a model. Call it before the first product there. */
void plan_keep(const char *model, const PlanConstants *constants);
const PlanConstants *plan_constants(const char *model);

/* What the driver reports of a GPU. Both clocks have the same unit. */
typedef struct {
    int capability[2];
    int clock, memory_clock, memory_bus_bits, multiprocessors;
} GpuFigures;

/* The fitted constants, scaled to another GPU by its data sheet. False for GPUs that need no
 * scaling, or that are not in the table. */
bool plan_constants_of_sheet(const GpuFigures *gpu, PlanConstants *constants);

/* An operand as the planner sees it: rows of A, or columns of B. */
typedef struct {
    bool k_major;     /* K-major; otherwise MN-major */
    bool aligned;     /* begins on a 16-byte boundary */
    bool has_pitch;   /* its other stride is above 0 */
    int8_t remainder; /* the other stride modulo 4 */
} PlanOperand;

/* All properties of a product that a plan depends on. */
typedef struct {
    int64_t M, N, K;
    int64_t count; /* of the batch in one launch; 1: one product */
    PlanOperand A, B;
    bool stores_float4; /* C is stored as aligned float4 and not read */
    bool C_is_float4;   /* all rows of C are aligned float4s */
    bool symmetric;     /* sgemm_is_symmetric */
    bool packed;        /* matrices and batches have no gaps, or are shared by all products */
} PlanShape;

PlanShape plan_shape(const Sgemm *problem); /* padding is zero: memcmp compares */

/* The properties of a device that a plan depends on. */
typedef struct {
    int multiprocessors; /* 0: no plans; the GPU's code is older than 8.0, or no GPU is modelled */
    int widest_cluster;  /* in blocks; 1 if the device runs no clusters */
    int shared_bytes;    /* the most that a block can have */
    const PlanConstants *constants;
} PlanDevice;

/* Whether the kernels of this plan can compute this product on this device. The planner proposes,
 * and the launcher launches, only plans that pass. */
bool plan_supports(const Plan *plan, const Sgemm *problem, const PlanDevice *device);

/* The plan that works for every product on every device with asynchronous copies. */
Plan plan_fallback(void);

/* The estimated cycles of a plan. */
double plan_estimate(const Plan *plan, const Sgemm *problem, const PlanDevice *device);

/* The time of two activities that overlap in part. It is hypot without its care for large numbers;
 * C's hypot would need glibc 2.35. */
static inline double overlapped(double a, double b)
{
    return sqrt(a * a + b * b);
}

/* Lists the candidate plans and returns how many there are. */
enum { PLANS_MOST = 256 };
int plan_list(const PlanShape *shape, const PlanDevice *device, Plan plans[PLANS_MOST]);

/* The candidate with the lowest estimate. Each thread caches its last plans by shape, layout,
 * alignment and device. */
Plan plan_choose(const Sgemm *problem, const PlanDevice *device);

/* Many partial sums are added in groups first. Returns the size of a group, or 1 without groups. */
int plan_group(int64_t splits);

/* DOT: the threads that share a result, and whether a warp reads lines of operands that are
 * contiguous along K. It depends on whether there is a batch, but not on its size: all parts of a
 * batch are computed in the same way. */
typedef struct {
    int sharers;
    bool by_lines;
} DotPlan;

static inline DotPlan dot_plan(int64_t results, int64_t K, bool batch, bool contiguous)
{
    const bool by_lines = batch && contiguous && K > 4;
    const bool many = batch ? by_lines && K > 128 : results <= 1024;
    return (DotPlan){many ? 32 : K <= 4 ? 1 : 8, by_lines};
}

/* How a product is computed in one launch together with others of other shapes (grouped.h). */
typedef struct {
    int kernel; /* one of GROUPED_TILES; -1 if the device supports none */
    bool transposed;
    double share;  /* cycles that the product adds to a launch that fills the GPU */
    double block;  /* cycles of one block */
    double cycles; /* its share, and its part of the time in which the last blocks end */
} GroupedPlan;

/* The plan with the fewest cycles, if `products` products are computed together. */
GroupedPlan plan_in_group(const Sgemm *problem, int64_t products, const PlanDevice *device);

/* The tiles of a configuration that cover C. */
int64_t plan_tiles(int kernel, int64_t rows, int64_t cols);

/* The tensor cores that `auto` uses on a device: none if neither is set. */
typedef struct {
    bool hopper;        /* compute capability 9.0: waves and fused */
    const Proof *proof; /* otherwise mma, if this is not NULL */
    int multiprocessors, shared_bytes;
} TensorCores;

/* Compute capability 9.0 needs no proof, others do. If model is NULL, a proof of any GPU counts. */
TensorCores plan_tensor_cores(const char *model, const int capability[2], const PlanDevice *device);

/* The rung on tensor cores that is estimated to take the least time for a product or a batch; none
 * if that is not clearly less than `cycles`. waves and fused compute a batch in one launch of each
 * kernel. */
typedef enum { TENSOR_NONE, TENSOR_MMA, TENSOR_WAVES, TENSOR_FUSED } TensorRung;
TensorRung plan_tensor_rung(double cycles, const Sgemm *problem, const TensorCores *cores);

/* The estimated cycles of the fastest rung on tensor cores; infinite if there is none. */
double plan_estimate_tensor(const Sgemm *problem, const TensorCores *cores, TensorRung *rung);

/* Finds groups at the begin of a list, and estimates how long they take in one launch of `fused`.
 * Returns how many there are, or 0. */
int plan_groups(const Sgemm *problems, int count, const TensorCores *cores, FusedGroups *groups);

/* Whether `mixed` is estimated to compute products of an A of 16 bits and a float32 B sooner than
 * `auto` with a float32 copy of A, on compute capability 9.0. With is_split, the fp16 pairs of B
 * exist. */
bool plan_prefers_mixed(const Sgemm *problem, bool is_split, const PlanDevice *device);

/* The same for `direct` and two operands of one 16-bit type. It computes all single products;
 * batches of tiny ones are faster in float32. */
bool plan_prefers_direct(const Sgemm *problem, const PlanDevice *device);

/* The estimated cycles of mma. *multiply_adds gets those of the busiest multiprocessor. */
double plan_estimate_mma(const Sgemm *problem, const TensorCores *cores, double *multiply_adds);

/* How many products of a batch the rung computes at once: the memory for fp16 pairs is limited. */
int64_t plan_tensor_batch(TensorRung rung, const Sgemm *batch);

/* Describe a device; compute a product by one plan (auto.cu). */
Status plan_device_cpu(const Launch *where, PlanDevice *device);
Status plan_device_cuda(const Launch *where, PlanDevice *device);
Status launch_plan_cpu(const Sgemm *problem, const Launch *where, const Plan *plan);
Status launch_plan_cuda(const Sgemm *problem, const Launch *where, const Plan *plan);

#ifdef __cplusplus
}
#endif
#endif
