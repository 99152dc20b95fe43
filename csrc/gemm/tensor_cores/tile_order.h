/* The order in which the kernels on tensor cores compute the tiles of C. */
#ifndef SGEMM_KERNELS_TILE_ORDER_H
#define SGEMM_KERNELS_TILE_ORDER_H

#include "../kernel/kernel.h"
#include "../kernel/lower_tile_order.h"

namespace {

/* The first row and column of a tile of C. Tiles are numbered column by column in bands of eight
 * tile rows, so that those in flight together share rows of A and columns of B in the L2 cache. */
__host__ __device__ __forceinline__ Origin tile_in_bands(const Matrix &C, int BM, int BN,
                                                         unsigned number)
{
    const unsigned down = static_cast<unsigned>((C.rows + BM - 1) / BM);
    const unsigned across = static_cast<unsigned>((C.cols + BN - 1) / BN);
    const unsigned band = number / (tile_band * across), in_band = number % (tile_band * across);
    const unsigned left = down - band * tile_band, rows = left < tile_band ? left : tile_band;
    const unsigned col = rows == tile_band ? in_band / tile_band : in_band / rows;
    const unsigned row = in_band - col * rows;
    return {static_cast<int64_t>(band * tile_band + row) * BM, static_cast<int64_t>(col) * BN};
}

/* How many tiles, one beside the other, have one place in the order. */
template <class T> constexpr int beside = 1;

/* How many tiles of C a kernel computes: with T::symmetric, those of the lower triangle. T::stacked
 * of them, one below the other, have one place in the order. */
template <class T> int64_t tiles_computed(const Matrix &C)
{
    constexpr int BM = T::stacked * T::BM, BN = beside<T> * T::BN;
    const int64_t places = T::symmetric ? lower_tiles(BM, BN, C.rows) : tiles_of(C, BM, BN);
    return T::stacked * beside<T> * places;
}

template <class T> __device__ __forceinline__ Origin tile_computed(const Matrix &C, unsigned number)
{
    constexpr int BM = T::stacked * T::BM, BN = beside<T> * T::BN;
    constexpr unsigned together = T::stacked * beside<T>;
    const unsigned place = number / together, part = number % together;
    Origin tile =
        T::symmetric ? lower_tile_in_bands(C, BM, BN, place) : tile_in_bands(C, BM, BN, place);
    tile.row += part / beside<T> * T::BM;
    tile.col += part % beside<T> * T::BN;
    return tile;
}

} // namespace

#endif
