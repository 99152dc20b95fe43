#include "tma.h"

#include <string.h>

#include "block.h"
#include "late.h"

namespace {

constexpr int element_bytes = 2, chunk_bytes = 16; /* a chunk stays together under a swizzle */
constexpr int chunk_elements = chunk_bytes / element_bytes;
constexpr int most_rows = 256; /* of a box */

const char *mistake(const void *to, const TensorMap &map, int x)
{
    if (map.swizzle != 64 && map.swizzle != 128) {
        return "a swizzle is 64 or 128 bytes";
    }
    if (map.box_inner * element_bytes != map.swizzle) {
        return "a row of a box has as many bytes as the swizzle";
    }
    if (map.box_outer < 1 || map.box_outer > most_rows) {
        return "a box has 1 to 256 rows";
    }
    if (reinterpret_cast<uintptr_t>(map.data) % chunk_bytes || map.pitch % chunk_bytes) {
        return "a tensor and each of its rows begin at multiples of 16 bytes";
    }
    if (x % chunk_elements) { /* which an H200 refuses as an illegal instruction */
        return "a box begins at a multiple of 16 bytes of a tensor's row";
    }
    if (reinterpret_cast<uintptr_t>(to) % static_cast<unsigned>(8 * map.swizzle)) {
        return "a box goes to a multiple of 8 of its rows in shared memory";
    }
    return nullptr;
}

/* Elements x to x + 7 of row y, where x is a multiple of 8; zero beyond the edges. */
void read_chunk(const TensorMap &map, int64_t x, int64_t y, char *chunk)
{
    const auto cols = static_cast<int64_t>(map.inner), rows = static_cast<int64_t>(map.outer);
    const int64_t there = cols - x < chunk_elements ? cols - x : chunk_elements;
    memset(chunk, 0, chunk_bytes);
    if (y >= 0 && y < rows && x >= 0 && there > 0) {
        const auto row = static_cast<const char *>(map.data) + y * static_cast<int64_t>(map.pitch);
        memcpy(chunk, row + x * element_bytes, static_cast<size_t>(there) * element_bytes);
    }
}

/* The box at column x and row y, as it lies in shared memory. */
void read_box(const TensorMap &map, int x, int y, char *to)
{
    const auto first = reinterpret_cast<uintptr_t>(to);
    for (int row = 0; row < map.box_outer; ++row) {
        for (int byte = 0; byte < map.swizzle; byte += chunk_bytes) {
            char chunk[chunk_bytes];
            read_chunk(map, int64_t{x} + byte / element_bytes, int64_t{y} + row, chunk);
            const uintptr_t linear = first + static_cast<unsigned>(row * map.swizzle + byte);
            memcpy(reinterpret_cast<void *>(swizzled_address(linear, map.swizzle)), chunk,
                   chunk_bytes);
        }
    }
}

} /* namespace */

void grid_copy_box(void *to, const TensorMap *map, uint64_t *barrier, int x, int y, int line)
{
    if (const char *const what = mistake(to, *map, x)) {
        block_fail(status_error(STATUS_DEVICE, "%s, line %d: %s", thread_name(), line, what));
    }
    const int bytes = map->swizzle * map->box_outer;
#ifdef SGEMM_LATE
    alignas(1024) char box[most_rows * 128];
    read_box(*map, x, y, box);
    late_box(to, box, bytes, barrier, grid_mbarrier_parity(barrier, line), line);
#else
    read_box(*map, x, y, static_cast<char *>(to));
#endif
    grid_mbarrier_complete_bytes(barrier, bytes, line);
}

void grid_proxy_fence(int)
{
#ifdef SGEMM_LATE
    late_view_all();
#endif
}
