/* Asynchronous copies by a thread: cp.async. */
#ifndef SGEMM_EMULATOR_COPY_ASYNC_H
#define SGEMM_EMULATOR_COPY_ASYNC_H

#include <stdint.h>
#include <string.h>

#pragma GCC visibility push(hidden)

/* Makes one group of all copies that this thread has started since the last commit. */
void grid_copy_commit();

/* Waits until at most the newest `left` groups of this thread are pending. */
void grid_copy_wait(int left);

/* Arrives at the mbarrier when all copies that this thread has started are complete. Does not
 * wait. */
void grid_copy_arrive(uint64_t *barrier, int line);

/* Starts a copy of `data`. In a checking build the destination holds NaN until it completes. */
void grid_copy_begins(void *to, const void *data, int bytes, int line);

#pragma GCC visibility pop

/* If accesses are counted: a function of its own, so that they are attributed to the calling
 * line. */
#ifdef SGEMM_TRACED
#define COPY_FUNCTION static __attribute__((noinline, unused))
#else
#define COPY_FUNCTION static inline
#endif

/* One access of a copy. Source and destination are accessed here, in the kernel's code, where
 * checkers watch and accesses are counted. */
template <class Piece> COPY_FUNCTION void grid_copy_piece(void *to, const void *from, int line)
{
    const Piece piece = from ? *static_cast<const Piece *>(from) : Piece{};
    Piece *const place = static_cast<Piece *>(to);
#ifdef SGEMM_DEFERRED_ASYNC
    memset(place, 0xff, sizeof piece);
    grid_copy_begins(place, &piece, sizeof piece, line);
#else
    (void)line;
    *place = piece;
#endif
}

/* Starts a copy of 4, 8 or 16 bytes to shared memory, or of zeros if `from` is null. Both addresses
 * are multiples of the size. */
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
