/* What the blocks of a grid do to tell each other something: atomic operations, and the fence that
 * orders what a thread did before them, or does after them, for other blocks. */
#ifndef SGEMM_CPU_EXCHANGE_H
#define SGEMM_CPU_EXCHANGE_H

#include <stddef.h>

#pragma GCC visibility push(hidden)

/* Add to what is there, and return what was there. They order nothing else, as on a GPU. */
int atomicAdd(int *address, int value);
unsigned atomicAdd(unsigned *address, unsigned value);
unsigned long long atomicAdd(unsigned long long *address, unsigned long long value);
float atomicAdd(float *address, float value);

/* Adds 1, or puts 0 where `last` or more is; returns what was there. */
unsigned atomicInc(unsigned *address, unsigned last);

/* What this thread has read and written, and what it knows that others have, comes before what it does
 * from here on, for threads of every block. It takes an atomic operation after the fence, and one of
 * another thread on the same word with a fence after it, for that thread to know of it. */
void __threadfence();

#ifdef SGEMM_LATE
/* A launch takes memory for itself, of which blocks see late what others store: late_memory.h; or gives
 * it back. */
void late_memory_taken(void *memory, size_t bytes);
void late_memory_given(void *memory);
#endif

#pragma GCC visibility pop

#endif
