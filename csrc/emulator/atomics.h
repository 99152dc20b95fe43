/* Communication between blocks: atomic operations, and the fence that orders memory accesses for
 * other blocks. */
#ifndef SGEMM_EMULATOR_ATOMICS_H
#define SGEMM_EMULATOR_ATOMICS_H

#include <stddef.h>

#pragma GCC visibility push(hidden)

/* Add to the value and return the old one. As on a GPU, they order no other accesses. */
int atomicAdd(int *address, int value);
unsigned atomicAdd(unsigned *address, unsigned value);
unsigned long long atomicAdd(unsigned long long *address, unsigned long long value);
float atomicAdd(float *address, float value);

/* Adds 1, or stores 0 if the value is at least `last`; returns the old value. */
unsigned atomicInc(unsigned *address, unsigned last);

/* Orders this thread's earlier accesses, and the accesses of others that it has observed, before
 * its later ones, for threads of all blocks. Another thread observes them through an atomic
 * operation after this fence, and an atomic operation on the same word followed by a fence of its
 * own. */
void __threadfence();

#ifdef SGEMM_DEFERRED_ASYNC
/* A launch allocates or frees memory in which blocks see each other's stores late:
 * deferred_async_memory.h. */
void deferred_async_memory_allocated(void *memory, size_t bytes);
void deferred_async_memory_freed(void *memory);
#endif

#pragma GCC visibility pop

#endif
