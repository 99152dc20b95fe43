/* Copies of boxes of a tensor to shared memory, as Hopper's tensor memory accelerator makes them. */
#ifndef SGEMM_CPU_TMA_H
#define SGEMM_CPU_TMA_H

#include <stdint.h>

/* A tensor of 16-bit elements: rows that begin `pitch` bytes apart, a multiple of 16, and boxes of it. */
struct TensorMap {
    const void *data;         /* aligned to 16 bytes */
    uint64_t inner, outer;    /* elements of a row, rows */
    uint64_t pitch;           /* bytes */
    int box_inner, box_outer; /* elements of a box's row, rows of a box */
    int swizzle;              /* 64 or 128: bytes of a box's row */
};

#pragma GCC visibility push(hidden)

/* The address at which swizzling puts what would lie at `linear`, in shared memory whose rows are
 * `swizzle` bytes: bits 4 to 6 are changed by bits 7 to 9 for 128, 4 and 5 by 7 and 8 for 64. */
static inline uintptr_t swizzled_address(uintptr_t linear, int swizzle)
{
    return linear ^ (linear >> 7 & (swizzle == 128 ? 7 : 3)) << 4;
}

/* Begins to copy the box whose first element is (y, x), row and column, a multiple of 8, to shared memory,
 * aligned to 8 rows of it. What lies beyond the tensor's edges becomes zero, and is counted: the barrier is told
 * of all bytes of a box. */
void grid_copy_box(void *to, const TensorMap *map, uint64_t *barrier, int x, int y, int line);

/* What this thread has written to shared memory is there for copies of boxes and for products by
 * warpgroups. */
void grid_proxy_fence(int line);

#pragma GCC visibility pop

#endif
