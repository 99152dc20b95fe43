#include "tma.h"

#include <string.h>

#include "block.h"
#include "deferred_async.h"

namespace {

constexpr int chunk_bytes = 16;    /* a swizzle keeps them together */
constexpr int most_elements = 256; /* of a tile, in each direction */
constexpr int most_bytes = 48 * 1024;

const char *mistake(const void *to, const TensorMap &map, int x, int z)
{
    const int in_row = bytes_of_row(&map);
    if (map.element_bytes != 2 && map.element_bytes != 4) {
        return "an element has 2 or 4 bytes";
    }
    if (map.swizzle != 0 && map.swizzle != 64 && map.swizzle != 128) {
        return "a swizzle must be 64 or 128 bytes, or 0 for none";
    }
    if (map.swizzle != 0 && in_row != map.swizzle) {
        return "a row of a TMA tile must have as many bytes as the swizzle";
    }
    if (map.tile_outer < 1 || map.tile_outer > most_elements || map.tile_inner < 1 ||
        map.tile_inner > most_elements || in_row % chunk_bytes) {
        return "a TMA tile must have 1 to 256 rows of 1 to 256 elements and a multiple of 16 bytes";
    }
    if (in_row * map.tile_outer > most_bytes) {
        return "a TMA tile can have at most 48 KiB on the CPU device";
    }
    if ((z < 0) != (map.matrices == 0)) { /* a GPU reports an illegal instruction */
        return "a tile of one matrix is loaded by tma_load_2d, and a tile of several matrices by "
               "tma_load_3d";
    }
    if (reinterpret_cast<uintptr_t>(map.data) % chunk_bytes || map.pitch % chunk_bytes ||
        map.matrix_pitch % chunk_bytes) {
        return "a tensor and each of its rows must begin at a multiple of 16 bytes";
    }
    if (x % (chunk_bytes / map.element_bytes)) { /* an H100 reports an illegal instruction */
        return "a TMA tile must begin at a multiple of 16 bytes of a tensor's row";
    }
    if (reinterpret_cast<uintptr_t>(to) %
        static_cast<unsigned>(map.swizzle ? 8 * map.swizzle : 128)) {
        return "a TMA tile's address in shared memory must be a multiple of 8 of its rows, "
               "or of 128 bytes without a swizzle";
    }
    return nullptr;
}

/* 16 bytes of row y of matrix z from element x on, which is at a multiple of 16 bytes. Zeros
 * outside the tensor. */
void read_chunk(const TensorMap &map, int64_t x, int64_t y, int z, char *chunk)
{
    const auto cols = static_cast<int64_t>(map.inner), rows = static_cast<int64_t>(map.outer);
    const int in_chunk = chunk_bytes / map.element_bytes;
    const int64_t there = cols - x < in_chunk ? cols - x : in_chunk;
    memset(chunk, 0, chunk_bytes);
    const bool has_matrix = z < 0 || static_cast<uint64_t>(z) < map.matrices;
    if (y >= 0 && y < rows && x >= 0 && there > 0 && has_matrix) {
        const auto row = static_cast<const char *>(map.data) + y * static_cast<int64_t>(map.pitch) +
                         (z < 0 ? 0 : z * static_cast<int64_t>(map.matrix_pitch));
        memcpy(chunk, row + x * map.element_bytes, static_cast<size_t>(there * map.element_bytes));
    }
}

/* The tile at column x and row y of matrix z, in its layout in shared memory. */
void read_tile(const TensorMap &map, int x, int y, int z, char *to)
{
    const auto first = reinterpret_cast<uintptr_t>(to);
    const int in_row = bytes_of_row(&map);
    for (int row = 0; row < map.tile_outer; ++row) {
        for (int byte = 0; byte < in_row; byte += chunk_bytes) {
            char chunk[chunk_bytes];
            read_chunk(map, int64_t{x} + byte / map.element_bytes, int64_t{y} + row, z, chunk);
            const uintptr_t linear = first + static_cast<unsigned>(row * in_row + byte);
            memcpy(reinterpret_cast<void *>(swizzled_address(linear, map.swizzle)), chunk,
                   chunk_bytes);
        }
    }
}

} /* namespace */

void grid_copy_tile(void *to, const TensorMap *map, uint64_t *barrier, int x, int y, int z,
                    int line)
{
    if (const char *const what = mistake(to, *map, x, z)) {
        block_fail(status_error(STATUS_DEVICE, "%s, line %d: %s", thread_name(), line, what));
    }
    const int bytes = bytes_of_row(map) * map->tile_outer;
#ifdef SGEMM_DEFERRED_ASYNC
    alignas(1024) char tile[most_bytes];
    read_tile(*map, x, y, z, tile);
    const auto *const seen = static_cast<const uint64_t *>(deferred_async_view(barrier, line));
    if (*seen >> 62 != 1) { /* as mbarrier.cpp marks one */
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: no proxy fence followed the initialization of the "
                                "mbarrier that the copy completes: call fence_proxy_async",
                                thread_name(), line));
    }
    deferred_async_tile(to, tile, bytes, barrier, grid_mbarrier_parity(barrier, line), line);
#else
    read_tile(*map, x, y, z, static_cast<char *>(to));
#endif
    grid_mbarrier_complete_bytes(barrier, bytes, line);
}

void grid_proxy_fence(int)
{
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_view_all();
#endif
}
