/* Asynchronous copies by a thread: cp.async. */
#ifndef SGEMM_CPU_COPY_ASYNC_H
#define SGEMM_CPU_COPY_ASYNC_H

#include <stdint.h>
#include <string.h>

/* Begins to copy 4, 8 or 16 bytes to shared memory, both addresses a multiple of that; zeros, if `from`
 * is null. */
static inline void grid_copy_async(void *to, const void *from, int bytes, int line)
{
    (void)line;
    if (bytes == 16) {
        *static_cast<float4 *>(to) =
            from ? *static_cast<const float4 *>(from) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    } else if (bytes == 8) {
        *static_cast<uint64_t *>(to) = from ? *static_cast<const uint64_t *>(from) : 0;
    } else {
        *static_cast<float *>(to) = from ? *static_cast<const float *>(from) : 0.0f;
    }
}

/* What this thread has begun to copy since it last said so is one group. */
static inline void grid_copy_commit() {}

/* Until of this thread's groups all but the newest `left` are there. */
static inline void grid_copy_wait(int left)
{
    (void)left;
}

#endif
