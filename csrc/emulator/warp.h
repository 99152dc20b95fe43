/* Warp shuffles and votes, under CUDA's names. The lanes of the mask take part. */
#ifndef SGEMM_EMULATOR_WARP_H
#define SGEMM_EMULATOR_WARP_H

#include <stdint.h>
#include <string.h>

#pragma GCC visibility push(hidden)

/* Waits until the lanes in the mask have called it, and returns the values of all of them, unless
 * `all` is null. Returns the mask of the lanes that exist. */
unsigned grid_exchange(unsigned mask, uint64_t mine, uint64_t *all, int line);

/* Lets the lanes in the mask wait for each other, and see each other's writes. */
void grid_barrier_of_lanes(unsigned mask, int line);

/* The lanes of the running thread's warp that exist. */
unsigned grid_lanes();

/* The value of lane `from`, or the thread's own if there is no such lane. It is undefined, and here
 * NaN, if the lane is not in the mask. */
unsigned grid_shuffle(unsigned mask, unsigned value, int from, int line);

/* One bit per thread: whether its predicate is nonzero. */
unsigned grid_ballot(unsigned mask, bool predicate, int line);

/* The lane of the running thread. */
int grid_lane();

#pragma GCC visibility pop

template <class T> static inline T grid_shuffle_any(unsigned mask, T value, int from, int line)
{
    static_assert(sizeof(T) == 4, "shuffles move 32 bits: int, unsigned or float");
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    bits = grid_shuffle(mask, bits, from, line);
    memcpy(&value, &bits, sizeof bits);
    return value;
}

#define __shfl_sync(mask, value, lane) grid_shuffle_any(mask, value, (lane)&31, __LINE__)
#define __shfl_xor_sync(mask, value, bits)                                                         \
    grid_shuffle_any(mask, value, grid_lane() ^ (bits), __LINE__)
#define __shfl_up_sync(mask, value, lanes)                                                         \
    grid_shuffle_any(mask, value, grid_lane() - static_cast<int>(lanes), __LINE__)
#define __shfl_down_sync(mask, value, lanes)                                                       \
    grid_shuffle_any(mask, value, grid_lane() + static_cast<int>(lanes), __LINE__)
#define __ballot_sync(mask, predicate) grid_ballot(mask, (predicate) != 0, __LINE__)
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0)
#define __all_sync(mask, predicate) (__ballot_sync(mask, predicate) == ((mask)&grid_lanes()))

#endif
