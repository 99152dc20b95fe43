/* Asynchronous copies by a thread: cp.async. */
#ifndef SGEMM_CPU_COPY_ASYNC_H
#define SGEMM_CPU_COPY_ASYNC_H

#include <stdint.h>
#include <string.h>

#pragma GCC visibility push(hidden)

/* What this thread has begun to copy since it last said so is one group. */
void grid_copy_commit();

/* Until of this thread's groups all but the newest `left` are there. */
void grid_copy_wait(int left);

/* Once all is there that this thread has begun to copy so far, it arrives at the mbarrier; it goes on
 * at once. */
void grid_copy_arrive(uint64_t *barrier, int line);

/* What the source held is on its way: in a checking build, where its place holds NaN for now. */
void grid_copy_begins(void *to, const void *data, int bytes, int line);

#pragma GCC visibility pop

/* Where accesses are counted a function of its own, so that they are known by the line that called it. */
#ifdef SGEMM_COUNTED
#define COPY_FUNCTION static __attribute__((noinline, unused))
#else
#define COPY_FUNCTION static inline
#endif

/* As much of a copy as one thread moves at once. Both sides are accessed here, in the kernel, where
 * checkers watch and accesses are counted. */
template <class Piece> COPY_FUNCTION void grid_copy_piece(void *to, const void *from, int line)
{
    const Piece piece = from ? *static_cast<const Piece *>(from) : Piece{};
    Piece *const place = static_cast<Piece *>(to);
#ifdef SGEMM_LATE
    memset(place, 0xff, sizeof piece);
    grid_copy_begins(place, &piece, sizeof piece, line);
#else
    (void)line;
    *place = piece;
#endif
}

/* Begins to copy 4, 8 or 16 bytes to shared memory, both addresses a multiple of that; zeros, if `from`
 * is null. */
COPY_FUNCTION void grid_copy_async(void *to, const void *from, int bytes, int line)
{
    if (bytes == 16) {
        grid_copy_piece<float4>(to, from, line);
    } else if (bytes == 8) {
        grid_copy_piece<uint64_t>(to, from, line);
    } else {
        grid_copy_piece<float>(to, from, line);
    }
}

#endif
