/* The constants of all estimates, and the tiles of kernels on tensor cores that the planner prices.
 * docs/inside/engine.md has their units and explains the estimates. TILES in tiles.h has the tile
 * configurations on CUDA cores. */
#ifndef SGEMM_PLAN_CONSTANTS_H
#define SGEMM_PLAN_CONSTANTS_H

/* On CUDA cores: fitted to measured times of an H100 (benchmarks/plan_model.py). */
#define PLAN_CONSTANTS(CONSTANT)                                                                   \
    CONSTANT(launch, 7180)                /* cycles from a cold launch to the first tile */        \
    CONSTANT(mn_major_copy, 3.49)         /* issue slots per float of an MN-major operand */       \
    CONSTANT(k_major_copy, 6.14)          /* issue slots per float of a K-major operand */         \
    CONSTANT(latency, 40)                 /* cycles per step of K that a lone warp waits */        \
    CONSTANT(store, 11.7)                 /* issue slots of a warp to store a result each */       \
    CONSTANT(store_rate, 13.4)            /* bytes of results per cycle and multiprocessor */      \
    CONSTANT(from_memory, 14.3)           /* bytes per cycle of memory and multiprocessor */       \
    CONSTANT(cluster_reduce_cycles, 2150) /* cycles to add the sums of a cluster */                \
    CONSTANT(arriving, 4290)              /* cycles until the last block sees all sums */          \
    CONSTANT(splitk_reduce_rate, 30.2)    /* bytes of partial sums added per cycle */              \
    CONSTANT(streamk_copies, 3.75)        /* STREAMK: factor on the issue slots of a copy */       \
    CONSTANT(dot_round, 994)              /* DOT: cycles for one round of loads */                 \
    CONSTANT(dot_step, 0.397)             /* DOT: multiprocessor cycles per thread and round */    \
    CONSTANT(gemv_launch, 5270)           /* GEMV: cycles of a cold launch */                      \
    CONSTANT(gemv_block, 3570)            /* GEMV: cycles for each wave of blocks */               \
    CONSTANT(gemv_filling, 1030)          /* GEMV: cycles for each resident block */               \
    CONSTANT(gemv_round, 716)             /* GEMV: cycles for one round of loads */                \
    CONSTANT(gemv_staged, 0.3)            /* GEMV: cycles to transpose a float of A */             \
    CONSTANT(gemv_unshared, 162)          /* GEMV: cycles to read a float of A for one column */

static const double simt_mirrored = 2; /* factor on storing at two places (assumed) */

/* Batches of small products: issue slots of a warp, counted in the machine code. */
static const double small_copy = 22;        /* to copy a float4, or a float, for each thread */
static const double small_chunk = 300;      /* to begin the copies of a K chunk */
static const double small_task = 300;       /* to begin and end a task */
static const double small_packed = 2.1;     /* for each multiply-add in a packed batch */
static const double small_results_4 = 1.3;  /* the same if a thread has 4 x 4 results */
static const double small_results_8 = 1.17; /* the same for 8 x 8 */
static const double small_sums = 70;        /* to add the results of two slices of K */
static const double small_from_l2 = 40;     /* bytes per cycle and multiprocessor (assumed) */
static const double small_latency = 2.7;    /* cycles per issue slot of a lone warp (measured) */

/* Tensor cores, for waves and in part for mma: fitted to an H200, except for tensor_unaligned,
 * which is from a profile, and the last two, which are from 80 products beside simt. */
static const double tensor_rate = 571;    /* float32 multiply-adds per cycle and multiprocessor */
static const double tensor_start = 32000; /* cycles of all launches */
static const double tensor_store = 0.83;  /* cycles to check and store a result */
static const double tensor_splitting = 0.89; /* share of from_memory at which operands are split */
static const double tensor_unaligned = 1.9;  /* factor on splitting K-major rows not in float4s */
static const double tensor_store_unaligned = 2; /* factor on tensor_store: no float4s of C */
/* Factors on that: stored at two places, if C is larger than the L2 cache or not. Set by hand after
 * times of an H200; not measured since. */
static const double tensor_mirrored = 1.5;
static const double tensor_mirrored_in_l2 = 1.1;
static const double tensor_l2 = 32 << 20; /* bytes of C */
static const double tensor_margin = 0.87; /* share of the time on CUDA cores to stay below */

/* The tiles of waves: rows, columns, stages, and the time of a wave in waves of the first one. */
#define WAVES_TILES(TILE)                                                                          \
    TILE(Square, 128, 128, 6, 1)                                                                   \
    TILE(Low, 64, 128, 8, 0.7)                                                                     \
    TILE(Wide, 128, 192, 5, 1.45)

/* fused: fitted to 570 products on an H200, except for fused_copy, which is from a profile,
 * fused_second_split and fused_copying, which are from 80 products, and fused_last_wave, which is
 * from 142. */
static const double fused_start = 24700;            /* cycles of all launches */
static const double fused_work = 1080;              /* cycles of a block for each tile */
static const double fused_wide_chunk = 2288;        /* cycles of a K chunk, 128 columns */
static const double fused_narrow_chunk = 1773;      /* cycles of a K chunk, 64 columns */
static const double fused_store = 0.55;             /* cycles to check and store a result */
static const double fused_adding = 3150;            /* cycles of the kernel that adds slices of K */
static const double fused_adding_mirrored = 3000;   /* and to store at two places (assumed) */
static const double fused_slice = 730;              /* cycles of that for each slice */
static const double fused_last_wave = 9000;         /* more if only the last wave is divided */
static const double fused_splitk_reduce_rate = 8.3; /* bytes per cycle and multiprocessor of that */
static const double fused_mn_major = 1.62;      /* cycles per step of K to split an MN-major B */
static const double fused_second_split = 12000; /* or for a long K cycles of a second kernel */
static const double fused_memory = 1585;        /* bytes per cycle of memory */
static const double fused_copy = 6000;          /* cycles to copy A, */
static const double fused_copying = 1500;       /* and bytes per cycle that the copy moves */

/* invariant: like fused, and assumed: */
static const double invariant_low_chunk = 1150; /* cycles of a K chunk of a lone tile of 64 x 64 */
static const double invariant_slice = 0.15;     /* cycles to add a slice of K to a result */

/* mixed: fitted by hand to 11 products on an H200, except for widening_start, which is assumed. */
static const double mixed_start = 18000;      /* cycles of all launches but the split */
static const double mixed_product = 0.8;      /* share of fused's time for the product */
static const double mixed_split_start = 7000; /* cycles to split the float32 operand, */
static const double mixed_splitting = 1800;   /* and bytes per cycle read and written */
static const double mixed_margin = 0.95;      /* share of the time in float32 to stay below */
static const double widening_start = 4000;    /* cycles to make a float32 copy of 16 bits */

/* direct's tiles: rows, columns, stages, and blocks on a multiprocessor. Then the cycles of a stage
 * of 64 steps of K: while other multiprocessors are idle, and what each block adds when all are
 * busy (direct_stage). Fitted by hand to 23 products on an H200. */
#define DIRECT_TILES(TILE)                                                                         \
    TILE(Square, 128, 128, 6, 1, 610, 585)                                                         \
    TILE(Low, 64, 128, 4, 2, 480, 430)                                                             \
    TILE(Wide, 128, 192, 5, 1, 785, 725)
static const double direct_work = 500;    /* cycles of a block for each tile, */
static const double direct_store = 0.25;  /* for each of its results, if all blocks store, */
static const double direct_adding = 3000; /* and to add slices of K in a cluster */

/* The host's cycles for a launch: 3.5 microseconds at 1.8 GHz. */
static const double launch_cycles = 6500;

#endif
