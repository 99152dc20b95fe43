/* The order in which the kernels on tensor cores compute the tiles of C. */
#ifndef SGEMM_KERNELS_TILE_ORDER_H
#define SGEMM_KERNELS_TILE_ORDER_H

#include "../kernel/kernel.h"

namespace {

constexpr unsigned band_rows = 8;

/* The first row and column of a tile of C. Tiles are numbered column by column in bands of eight
 * tile rows, so that those in flight together share rows of A and columns of B in the L2 cache. */
__device__ __forceinline__ Origin tile_in_bands(const Matrix &C, int BM, int BN, unsigned number)
{
    const unsigned down = static_cast<unsigned>((C.rows + BM - 1) / BM);
    const unsigned across = static_cast<unsigned>((C.cols + BN - 1) / BN);
    const unsigned band = number / (band_rows * across), in_band = number % (band_rows * across);
    const unsigned left = down - band * band_rows, rows = left < band_rows ? left : band_rows;
    const unsigned col = rows == band_rows ? in_band / band_rows : in_band / rows;
    const unsigned row = in_band - col * rows;
    return {static_cast<int64_t>(band * band_rows + row) * BM, static_cast<int64_t>(col) * BN};
}

/* The number of the tile that begins there. */
__device__ __forceinline__ unsigned number_in_bands(const Matrix &C, int BM, int BN,
                                                    const Origin &tile)
{
    const unsigned down = static_cast<unsigned>((C.rows + BM - 1) / BM);
    const unsigned across = static_cast<unsigned>((C.cols + BN - 1) / BN);
    const unsigned row = static_cast<unsigned>(tile.row / BM), first = row / band_rows * band_rows;
    const unsigned left = down - first, rows = left < band_rows ? left : band_rows;
    return first * across + static_cast<unsigned>(tile.col / BN) * rows + row - first;
}

} // namespace

#endif
