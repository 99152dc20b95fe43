/* Copies of boxes of a tensor to shared memory, as Hopper's tensor memory accelerator makes them. */
#ifndef SGEMM_CPU_TMA_H
#define SGEMM_CPU_TMA_H

#include <stdint.h>

/* A tensor: rows that begin `pitch` bytes apart, a multiple of 16, and boxes of it. */
struct TensorMap {
    const void *data;         /* aligned to 16 bytes */
    uint64_t inner, outer;    /* elements of a row, rows */
    uint64_t pitch;           /* bytes */
    int element_bytes;        /* 2 or 4 */
    int box_inner, box_outer; /* elements of a box's row, rows of a box: 1 to 256 */
    int swizzle;              /* 64 or 128: bytes of a box's row; or 0, in order */
};

#pragma GCC visibility push(hidden)

/* The address at which swizzling puts what would lie at `linear`, in shared memory whose rows are
 * `swizzle` bytes: bits 4 to 6 are changed by bits 7 to 9 for 128, 4 and 5 by 7 and 8 for 64. */
static inline uintptr_t swizzled_address(uintptr_t linear, int swizzle)
{
    return linear ^ (linear >> 7 & (swizzle == 128 ? 7 : swizzle == 64 ? 3 : 0)) << 4;
}

/* Of a box's row: a multiple of 16. */
static inline int bytes_of_row(const struct TensorMap *map)
{
    return map->box_inner * map->element_bytes;
}

/* Begins to copy the box whose first element is (y, x), row and column, x of a multiple of 16 bytes, to
 * shared memory, aligned to 8 rows of it if they are swizzled, or to 128 bytes. What lies beyond the
 * tensor's edges becomes zero, and is counted: the barrier is told of all bytes of a box. */
void grid_copy_box(void *to, const TensorMap *map, uint64_t *barrier, int x, int y, int line);

/* What this thread has written to shared memory is there for copies of boxes and for products by
 * warpgroups. */
void grid_proxy_fence(int line);

#pragma GCC visibility pop

#endif
