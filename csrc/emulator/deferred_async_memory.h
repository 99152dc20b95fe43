/* In a checking build, memory that a launch allocates shows a block only what was there when the
 * grid started and the block's own stores. It sees stores of other blocks late: after a fence, an
 * atomic operation and another fence. When the grid ends, all stores are visible. The blocks of a
 * cluster count as one: they see each other's stores at once. */
#ifndef SGEMM_EMULATOR_DEFERRED_ASYNC_MEMORY_H
#define SGEMM_EMULATOR_DEFERRED_ASYNC_MEMORY_H

#include "grid.h"

#ifdef SGEMM_DEFERRED_ASYNC

#pragma GCC visibility push(hidden)

/* The bytes of launches that have ended and did not give their memory back. Forgets them. */
size_t deferred_async_memory_left();

void deferred_async_grid_begins();
void deferred_async_grid_ends();

/* A block or cluster starts or ends. One runs at a time. */
void deferred_async_memory_of_block_begins();
void deferred_async_memory_of_block_ends();

/* A fence by any thread of the block. */
void deferred_async_fence();
void deferred_async_atomic_begins(void *address, size_t bytes);
void deferred_async_atomic_ends(void *address, size_t bytes);

#pragma GCC visibility pop

#endif

#endif
