/* How a product is divided over a GPU: into tiles of C, and parts of K. */
#ifndef SGEMM_PLAN_H
#define SGEMM_PLAN_H

#include <stdbool.h>

#include "../core/sgemm.h"
#include "../core/status.h"
#include "../core/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tilings that raster's kernel is compiled for, or with one stage that of single_stage in auto.cu, or that
 * of engine/joined.h where there are slices or parts of K:
 * BM, BN, BK, WM, WN, TM, TN, SLICES, STAGES as in tile_product.h, how many blocks a multiprocessor shall
 * have room for, and what a step of K takes a warp, by measured times: issue slots where others fill the
 * multiprocessor, and cycles where none does; and what its results take to be stored, in per cent of what the
 * constants say. The first is streamk's. */
#ifndef TRIED_TILINGS /* more of them, which benchmarks/plan_times.py tries */
#define TRIED_TILINGS(TILING)
#endif
#define TILINGS(TILING)                                                                            \
    TILING(128, 256, 32, 64, 64, 8, 16, 1, 4, 1, 127, 146, 175)                                    \
    TILING(128, 128, 16, 64, 64, 8, 16, 1, 4, 2, 142, 72, 127)                                     \
    TILING(64, 128, 16, 32, 64, 8, 8, 1, 4, 4, 79, 105, 88)                                        \
    TILING(32, 128, 8, 32, 64, 8, 8, 1, 4, 8, 82, 116, 92)                                         \
    TILING(64, 64, 16, 32, 32, 4, 8, 1, 4, 5, 43, 56, 109)                                         \
    TILING(32, 64, 32, 16, 32, 4, 4, 1, 1, 6, 28, 73, 143)                                         \
    TILING(32, 32, 128, 32, 32, 4, 8, 8, 1, 2, 58, 161, 70)                                        \
    TILING(32, 64, 32, 32, 64, 8, 8, 4, 4, 4, 97, 56, 81)                                          \
    TILING(32, 32, 32, 32, 32, 4, 8, 4, 4, 6, 59, 54, 75)                                          \
    TILING(64, 64, 32, 32, 64, 8, 8, 4, 4, 2, 78, 123, 57)                                         \
    TILING(16, 64, 32, 16, 64, 4, 8, 4, 4, 5, 74, 45, 86)                                          \
    TILING(128, 128, 32, 64, 64, 8, 16, 2, 4, 1, 126, 144, 94)                                     \
    TILING(96, 128, 16, 48, 64, 12, 8, 1, 4, 3, 109, 74, 128)                                      \
    TILING(48, 64, 32, 48, 64, 12, 8, 4, 4, 3, 118, 119, 66)                                       \
    TILING(32, 128, 32, 32, 128, 8, 16, 4, 4, 2, 159, 79, 83)                                      \
    TILING(16, 128, 32, 16, 128, 8, 8, 4, 4, 2, 112, 35, 91)                                       \
    TRIED_TILINGS(TILING)

#define ONE(...) +1
enum { TILING_COUNT = 0 TILINGS(ONE) };
#undef ONE

/* In place of a tiling: rows of C by matrix-vector products, engine/gemv.h; the rung tma,
 * which streams tiles of the first tiling; and engine/direct.h, with so many steps of K at a
 * time for each of the threads that share a result. Of few results more do: K takes fewer rounds, and the GPU has room
 * for them. Of more, and so short a K that one thread loads it at once, nobody shares one. */
enum { GEMV = TILING_COUNT, STREAMK, DIRECT };
enum { DIRECT_AT_ONCE = 4 };
#define DIRECT_SHARERS(results, K) ((results) <= 1024 ? 32 : (K) <= DIRECT_AT_ONCE ? 1 : 8)

/* gemv is for so few rows of C at most. A block of it has 1, 2, 4 or 8 of them, this logarithm of threads, and a
 * power of two of columns, at most so many. Of how many rows it has depends for how many blocks a multiprocessor has
 * room, and how many quads of B a thread has on their way. If B lies by columns, a block takes such as begin alike, to
 * be read by aligned quads: each so many after the one before. If neighbours of A lie across K then, they are staged:
 * brought to shared memory, which has room for so many steps of K. */
enum { GEMV_MOST_ROWS = 64, GEMV_ROWS = 8, GEMV_THREAD_BITS = 9, GEMV_WIDEST_BY_COLUMNS = 64 };
#define GEMV_WIDEST_BY_ROWS(rows) ((rows) < GEMV_ROWS ? 128 : 64)
#define GEMV_DEEP(rows, staged) ((rows) < GEMV_ROWS || (staged) ? 4 : 2)
#define GEMV_RESIDENT(rows) ((rows) < 4 ? 2 : 1)
#define GEMV_RESIDENT_BY_QUADS(rows) ((rows) < 2 ? 2 : 1)
#define GEMV_STAGED(rows) (16384 / (GEMV_RESIDENT(rows) * (rows)))
#define GEMV_APART(col_stride) ((col_stride) % 4 == 0 ? 1 : (col_stride) % 2 == 0 ? 2 : 4)

/* Blocks of a cluster, a power of two, of which each GPU that has clusters takes so many; and threads, as the CPU
 * device has room for. */
enum { CLUSTER_MOST_BLOCKS = 8, CLUSTER_MOST_THREADS = 1024 };
/* Whether a tiling has room for its results where its tiles were, those of each slice, with four floats more in each
 * row: then K may be divided among blocks (engine/joined.h). */
#define JOINS(BM, BN, BK, STAGES, SLICES)                                                          \
    ((SLICES) * (BM) * ((BN) + 4) <= (STAGES) * (BK) * ((BM) + 4 + (BN) + 4))
/* Whether its tiles take more shared memory than a block has on each GPU from 8.0 on. */
#define NEEDS_LARGE_BLOCKS(BM, BN, BK, STAGES)                                                     \
    ((STAGES) * (BK) * ((BM) + 4 + (BN) + 4) * 4 > 98 * 1024)

/* What a plan takes is estimated in cycles of a multiprocessor, with these constants. They were fitted to
 * times of 35,776 plans at 3,391 shapes on an H100, a tenth of kinds at which a choice matters most, and the
 * last three figures of the tilings with them (benchmarks/plan_model.py has the same arithmetic, and how they
 * are fitted). What they say of another GPU is what it says of its number of multiprocessors, until others are
 * fitted there. */
#define PLAN_CONSTANTS(CONSTANT)                                                                   \
    CONSTANT(launch, 7410) /* from cold */                                                         \
    CONSTANT(wait, 421)    /* from when a block begins to copy a tile until it is there */         \
    /* Issue slots, of which a multiprocessor has four a cycle: */                                 \
    CONSTANT(across, 2.93) /* for a copy of a float of each, across the lines, */                  \
    CONSTANT(along, 5.71)  /* or along them; quads are copied for nothing beside */                \
    CONSTANT(store, 13.1)  /* for 128 bytes of a line of C that they store float by float, */      \
    CONSTANT(quad, 75.5)   /* or for a quad of each */                                             \
    /* Bytes a cycle of a block's results, which no other block's products hide: */                \
    CONSTANT(draining, 32.4)                                                                       \
    /* Bytes a cycle and multiprocessor: */                                                        \
    CONSTANT(from_memory, 15) /* of operands and results, */                                       \
    CONSTANT(of_parts, 11.2)  /* and of parts of K, written and read; */                           \
    /* floats that come from memory beside each piece of a row that a tile has of an operand, */   \
    CONSTANT(wasted_across, 4.23) /* where rows run across its lines, */                           \
    CONSTANT(wasted_along, 5.08)  /* or along them; */                                             \
    /* how far that and all else add up: 0 as a right angle's sides do, 1 wholly; */               \
    CONSTANT(adding_up, 0.00952)                                                                   \
    /* and cycles: */                                                                              \
    CONSTANT(copying, 12300)       /* an operand, by a kernel before */                            \
    CONSTANT(arriving, 5070)       /* when the last block to arrive adds what others left */       \
    CONSTANT(again, 2360)          /* and when the last of a group did so before, */               \
    CONSTANT(collecting, 23.4)     /* bytes a cycle that one block adds so */                      \
    CONSTANT(stream_tile, 14900)   /* streamk's, to begin a tile and to end it, */                 \
    CONSTANT(stream_shared, 21500) /* and where tiles are shared, and */                           \
    CONSTANT(stream_adding, 43.9)  /* bytes a cycle that one block adds then; */                   \
    /* What a cluster takes to add its blocks' parts (engine/joined.h): */                         \
    CONSTANT(joining, 1920)                                                                        \
    CONSTANT(exchange, 36.2) /* issue slots for a result of each thread, handed on and read, */    \
    CONSTANT(joined_lines, 10.1)   /* and stored float by float along a row, of 32, */             \
    CONSTANT(joined_columns, 29.8) /* or down a column, */                                         \
    CONSTANT(joined_quads, 2.21)   /* or by quads; */                                              \
    /* and where several clusters leave theirs in memory: */                                       \
    CONSTANT(pairing, 1880)     /* cycles more where they are of two blocks, */                    \
    CONSTANT(scattered, 0.0723) /* and for each result that is stored along rows then */           \
    /* Busy longer by so much, for each doubling of a cluster beyond two blocks: */                \
    CONSTANT(widening, 0.0186)                                                                     \
    /* What direct takes (engine/direct.h): it has less code to bring from memory. */              \
    CONSTANT(direct_launch, 6510)                                                                  \
    CONSTANT(direct_round, 1180)   /* for as many steps of K as its threads load at once */        \
    CONSTANT(direct_thread, 0.783) /* for each thread of a multiprocessor, */                      \
    CONSTANT(direct_steps, 0.529)  /* and for so many steps in one of these */                     \
    /* What gemv takes (engine/gemv.h): */                                                         \
    CONSTANT(gemv_launch, 5130)                                                                    \
    CONSTANT(gemv_block, 3560)    /* for each block that a multiprocessor has after another, */    \
    CONSTANT(gemv_filling, 969)   /* and for each that it has at once, in the mean, */             \
    CONSTANT(gemv_arriving, 5360) /* when the last of several adds what others left */             \
    CONSTANT(gemv_round, 684)     /* for as many steps of K as one loads at once, */               \
    CONSTANT(gemv_row, 148)       /* for these in each of its rows, */                             \
    CONSTANT(gemv_single, 67.9)   /* and for each quad of them that a thread reads singly, */      \
    CONSTANT(gemv_factor, 0.31)   /* and for each element of A that it brings to shared memory, */ \
    CONSTANT(gemv_product, 0.00876) /* and multiplies, for each of its columns, */                 \
    CONSTANT(gemv_unshared, 262)    /* or reads, over the columns that share it, */                \
    CONSTANT(gemv_scattered, 510)   /* where they lie apart, */                                    \
    /* for so many floats beside each row of its columns, which come from memory with these; */    \
    CONSTANT(gemv_wasted, 4)                                                                       \
    CONSTANT(streaming, 11.9) /* bytes a cycle and multiprocessor, gemv's and direct's */

#define CONSTANT(name, value) double name;
typedef struct {
    PLAN_CONSTANTS(CONSTANT)
} PlanConstants;
#undef CONSTANT

extern const PlanConstants plan_fitted;

/* Constants that were fitted on GPUs of a model: what plans there are estimated with from now on. Called
 * before any plan is made; of the first models only, of which there are 16 at most. */
void plan_keep(const char *model, const PlanConstants *constants);

/* Those of a model. */
const PlanConstants *plan_constants(const char *model);

typedef struct {
    int tiling;              /* an index in TILINGS, or GEMV, STREAMK or DIRECT */
    int splits;              /* parts of K, at least 1 */
    bool swapped;            /* compute the transpose of C */
    bool copies_A, copies_B; /* first copies the operand to where it can be read by quads */
    int cluster; /* blocks of a cluster, each with a part of K, if engine/joined.h adds them; or 0 */
    int width;   /* columns of gemv's blocks, a power of two */
    double cycles; /* that it takes, by the estimate */
} Plan;

/* The plan that takes the least time by an estimate, on a GPU of so many multiprocessors, with clusters of
 * blocks or without. */
Plan plan_any(const Sgemm *problem, int multiprocessors, bool clusters,
              const PlanConstants *constants);

/* The same for a product of which the last rows or columns of C would be tiles that mostly lie beyond it: where that
 * takes less time these, the rests, are products of their own. */
typedef struct {
    Plan most;             /* of C: all but the rests */
    int64_t rows, cols;    /* that are rests, or 0: rows of all of C, and columns of the others */
    Plan of_rows, of_cols; /* theirs */
    double cycles;         /* of all three, by the estimate */
} PlanWithRests;
PlanWithRests plan_with_rests(const Sgemm *problem, int multiprocessors, bool clusters,
                              const PlanConstants *constants);

/* So many rows and columns of C, from `row` and `col` on, as a product of its own. */
Sgemm plan_block(const Sgemm *problem, int64_t row, int64_t rows, int64_t col, int64_t cols);

/* In how many parts the first tiling should have K, where a second kernel adds them: splitk's, by plan_fitted. */
int plan_splits(const Sgemm *problem, int multiprocessors);

/* How streamk divides so many tiles, each of so many steps: the first ones have a block each, and
 * others, `shares` of them, divide the steps of the rest, of which a tile has about so many parts at most.
 * Nobody has more than `steps`. */
typedef struct {
    int64_t whole, shares, parts;
    double steps;
} StreamPlan;
StreamPlan plan_stream(int64_t tiles, int64_t steps, int places, int depth);

/* How many of so many parts are added first, by the last of them to arrive, before the last of all adds these sums; 1
 * where it adds all parts at once. */
int plan_group(int64_t parts);

/* Whether tensor cores take less time than so many cycles, on a GPU of so many multiprocessors: by an
 * estimate of what they take where few results have to be computed in float32 after all. */
bool plan_loses_to_tensor_cores(double cycles, const Sgemm *problem, int multiprocessors);

/* Compute a product by a plan: engine/auto.cu. */
Status launch_plan_cpu(const Sgemm *problem, const Launch *where, const PlanWithRests *plan);
Status launch_plan_cuda(const Sgemm *problem, const Launch *where, const PlanWithRests *plan);

/* Whether a GPU has the clusters of such plans; the CPU device has. */
bool has_clusters_cuda(const Launch *where);

#ifdef __cplusplus
}
#endif
#endif
