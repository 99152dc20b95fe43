/* In a checking build a block sees of memory that a launch takes for itself what lay there when its grid
 * began, and what it has stored there itself. What other blocks store it sees late: after a fence, an
 * atomic operation and another fence; and everybody when the grid has ended. The blocks of a cluster are
 * as one in this: each sees at once what the others store. */
#ifndef SGEMM_CPU_LATE_MEMORY_H
#define SGEMM_CPU_LATE_MEMORY_H

#include "grid.h"

#ifdef SGEMM_LATE

#pragma GCC visibility push(hidden)

void late_grid_begins();
void late_grid_ends();

/* A block begins, or ends, or a cluster, of which one runs at a time. */
void late_memory_of_block_begins();
void late_memory_of_block_ends();

/* Of whichever of the block's threads. */
void late_fence();
void late_atomic_begins(void *address, size_t bytes);
void late_atomic_ends(void *address, size_t bytes);

#pragma GCC visibility pop

#endif

#endif
