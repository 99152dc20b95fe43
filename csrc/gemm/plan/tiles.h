/* The tile configurations of simt's kernels. The kernels, the planner's table and the tests are
 * generated from this list.
 *
 *   BM x BN   results of a block
 *   BK        steps of K in one tile of shared memory
 *   WM x WN   results of a warp
 *   TM x TN   results of a thread
 *   SLICES    intra-block split-K: warps that compute the same results, each from a slice of BK
 *   BLOCKS    resident blocks of a multiprocessor
 *   SLOTS     issue slots of a warp for one step of K of its results, summed over slices; fitted */
#ifndef SGEMM_GEMM_TILES_H
#define SGEMM_GEMM_TILES_H

/*       BM   BN   BK  WM  WN   TM  TN  SLICES BLOCKS SLOTS */
#define TILES(TILE)                                                                                \
    TILE(128, 128, 16, 64, 64, 8, 16, 1, 2, 138)                                                   \
    TILE(96, 128, 16, 48, 64, 12, 8, 1, 3, 109)                                                    \
    TILE(64, 64, 16, 32, 32, 4, 8, 1, 5, 43.6)                                                     \
    TILE(32, 128, 8, 32, 64, 8, 8, 1, 8, 92.9)                                                     \
    TILE(48, 64, 32, 48, 64, 12, 8, 4, 3, 120)                                                     \
    TILE(32, 128, 32, 32, 128, 8, 16, 4, 2, 157)                                                   \
    TILE(32, 32, 32, 32, 32, 4, 8, 4, 6, 55.2)                                                     \
    TILE(16, 128, 32, 16, 128, 8, 8, 4, 2, 105)

/* The rows of this list for launches of many products: indices from 0. */
#define GROUPED_TILES(TILE) TILE(0) TILE(2) TILE(6) TILE(7)

enum { TILE_STAGES = 4 }; /* tiles of A and of B in shared memory */

/* Bytes of shared memory of a block: tiles whose rows are padded by a float4, barriers, a flag. */
#define TILE_SHARED(BM, BN, BK) (TILE_STAGES * ((BK) * ((BM) + (BN) + 8) * 4 + 8) + 16)

/* Every device with asynchronous copies can run this configuration: it takes 36 KiB of shared
 * memory. */
enum { TILE_FALLBACK = 6 };

#endif
