/* How many tiles of a symmetric C have an element on or below the diagonal: for the kernels that
 * compute only these, and for the planner. */
#ifndef SGEMM_KERNELS_LOWER_TILES_H
#define SGEMM_KERNELS_LOWER_TILES_H

#include "../../base/sgemm.h"

#ifdef __CUDACC__
#define LOWER_TILES static __host__ __device__ __forceinline__
#else
#define LOWER_TILES static inline
#endif

/* In one row of tiles, if C has enough columns. */
LOWER_TILES int64_t lower_tiles_of_row(int BM, int BN, int64_t row)
{
    return ((row + 1) * BM + BN - 1) / BN;
}

/* In the first rows of tiles. After `period` rows, their ends repeat `step` tiles to the right. */
LOWER_TILES int64_t lower_tiles_of_rows(int BM, int BN, int64_t rows)
{
    int period = 1;
    while (period * BM % BN != 0) {
        ++period;
    }
    const int step = period * BM / BN;
    const int64_t cycles = rows / period, left = rows % period;
    int64_t tiles = step * (period * (cycles * (cycles - 1) / 2) + left * cycles);
    for (int row = 0; row < period; ++row) {
        tiles += lower_tiles_of_row(BM, BN, row) * (cycles + (row < left));
    }
    return tiles;
}

/* In a C with so many rows and columns. Its last row of tiles may have a tile outside C. */
LOWER_TILES int64_t lower_tiles(int BM, int BN, int64_t side)
{
    const int64_t down = (side + BM - 1) / BM, across = (side + BN - 1) / BN;
    const int64_t of_last = lower_tiles_of_row(BM, BN, down - 1);
    return lower_tiles_of_rows(BM, BN, down) - (of_last > across ? of_last - across : 0);
}

/* The tiles of one C that a kernel computes, all or those of the lower triangle. */
LOWER_TILES int64_t tiles_of_one(const Sgemm *p, bool symmetric, int BM, int BN)
{
    return symmetric ? lower_tiles(BM, BN, p->C.rows)
                     : (p->C.rows + BM - 1) / BM * ((p->C.cols + BN - 1) / BN);
}

#endif
