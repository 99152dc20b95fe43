/* Tiles of a tensor loaded to shared memory, as by Hopper's tensor memory accelerator (TMA). */
#ifndef SGEMM_EMULATOR_TMA_H
#define SGEMM_EMULATOR_TMA_H

#include <stdint.h>

/* A tensor map: rows that start `pitch` bytes apart, a multiple of 16, and the tiles of the
 * tensor. With `matrices`, the tensor has so many of them, and a tile is in one. */
struct TensorMap {
    const void *data;           /* 16-byte aligned */
    uint64_t inner, outer;      /* elements per row, rows */
    uint64_t pitch;             /* bytes */
    int element_bytes;          /* 2 or 4 */
    int tile_inner, tile_outer; /* elements per row of a tile, rows of a tile: 1 to 256 */
    int swizzle;                /* bytes per row of a tile, 64 or 128; 0: no swizzle */
    uint64_t matrices = 0;      /* 0: the tensor is one matrix, and has two dimensions */
    uint64_t matrix_pitch = 0;  /* bytes from one to the next, a multiple of 16 */
};

#pragma GCC visibility push(hidden)

/* The swizzled address for address `linear` in rows of `swizzle` bytes. For 128, bits 4 to 6 are
 * XORed with bits 7 to 9; for 64, bits 4 and 5 with bits 7 and 8. */
static inline uintptr_t swizzled_address(uintptr_t linear, int swizzle)
{
    return linear ^ (linear >> 7 & (swizzle == 128 ? 7 : swizzle == 64 ? 3 : 0)) << 4;
}

/* Bytes in a tile's row: a multiple of 16. */
static inline int bytes_of_row(const struct TensorMap *map)
{
    return map->tile_inner * map->element_bytes;
}

/* Starts loading the tile whose first element is (y, x), row and column, of matrix z, to shared
 * memory. z is -1 if the tensor has two dimensions. x is at a multiple of 16 bytes. The destination
 * is aligned to 8 rows if swizzled, otherwise to 128 bytes. Elements outside the tensor become
 * zeros and count: the barrier counts all bytes of a tile. */
void grid_copy_tile(void *to, const TensorMap *map, uint64_t *barrier, int x, int y, int z,
                    int line);

/* Makes this thread's earlier writes to shared memory visible to TMA and warpgroup products. */
void grid_proxy_fence(int line);

#pragma GCC visibility pop

#endif
