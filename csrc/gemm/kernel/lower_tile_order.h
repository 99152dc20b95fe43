/* The order in which kernels compute the tiles of a symmetric C. */
#ifndef SGEMM_KERNELS_LOWER_TILE_ORDER_H
#define SGEMM_KERNELS_LOWER_TILE_ORDER_H

#include "kernel.h"
#include "lower_tiles.h"

constexpr unsigned tile_band = 8; /* rows of tiles that share columns of B in the L2 cache */

/* The first row and column of a tile of a square C, if only tiles with an element on or below the
 * diagonal are numbered: column by column in bands of eight rows of tiles. At the end of a band,
 * where its rows differ, they are numbered row by row. */
static __device__ __forceinline__ Origin lower_tile_in_bands(const Matrix &C, int BM, int BN,
                                                             unsigned number)
{
    const auto down = static_cast<unsigned>((C.rows + BM - 1) / BM);
    const auto before = [&](unsigned band) { // tiles in earlier bands
        return static_cast<unsigned>(lower_tiles_of_rows(BM, BN, band * tile_band));
    };
    // Tiles up to a row are about the square of its number, times BM / (2 BN).
    const float row_about =
        sqrtf(static_cast<float>(number) * static_cast<float>(2 * BN) / static_cast<float>(BM));
    unsigned band = static_cast<unsigned>(row_about) / tile_band;
    while (before(band) > number) {
        --band;
    }
    while ((band + 1) * tile_band < down && before(band + 1) <= number) {
        ++band;
    }
    const unsigned first = band * tile_band, left = down - first;
    const unsigned rows = left < tile_band ? left : tile_band;
    const auto common = static_cast<unsigned>(lower_tiles_of_row(BM, BN, first)); // to all rows
    unsigned in_band = number - before(band), row = in_band % rows, col = in_band / rows;
    if (col >= common) {
        in_band -= rows * common;
        for (row = 0;; ++row) {
            const auto all = static_cast<unsigned>(lower_tiles_of_row(BM, BN, first + row));
            if (in_band < all - common) {
                break;
            }
            in_band -= all - common;
        }
        col = common + in_band;
    }
    return {static_cast<int64_t>(first + row) * BM, static_cast<int64_t>(col) * BN};
}

#endif
