/* In a checking build, asynchronous work completes as late as its rules allow. The destination of a
 * copy holds NaN until the kernel waits for the copy. Reads that come too early are found, as are
 * writes to memory that a copy still writes or a product still reads. */
#ifndef SGEMM_EMULATOR_DEFERRED_ASYNC_H
#define SGEMM_EMULATOR_DEFERRED_ASYNC_H

#include "grid.h"

#ifdef SGEMM_DEFERRED_ASYNC

#pragma GCC visibility push(hidden)

/* The byte of shared memory as TMA and warpgroup products see it: as it was at the last proxy
 * fence. Ends the launch with an error if the address is not in this block's shared memory. */
void *deferred_async_view(const void *shared, int line);

/* Updates that view with all writes of threads to the block's shared memory. */
void deferred_async_view_all();

/* Starts a copy of up to 16 bytes to shared memory, which now holds NaN. This thread waits for
 * it. */
void deferred_async_copy(void *to, const void *data, int bytes, int line);

/* Makes one group of all copies that this thread has started since the last commit. */
void deferred_async_commit();

/* Completes all but the newest `left` groups of this thread. */
void deferred_async_wait(int left);

/* Copies that this thread has started also complete when a thread has waited for the barrier's
 * phase. */
void deferred_async_attach(const uint64_t *barrier, int parity);

/* Starts a TMA copy to shared memory, which holds NaN until a thread has waited for the barrier's
 * phase. */
void deferred_async_tile(void *to, const void *data, int bytes, const uint64_t *barrier, int parity,
                         int line);

/* A thread has waited for the barrier's phase of this parity. */
void deferred_async_land(const uint64_t *barrier, int parity);

/* A product of this line starts, or stops, reading these bytes. */
void deferred_async_read_begins(const void *from, int bytes, int line);
void deferred_async_read_ends(const void *from, int line);

/* A block or cluster starts with unwritten shared memory, or ends and must have no pending
 * copies. */
void deferred_async_block_begins();
void deferred_async_block_ends();

/* The dynamic shared memory of a block that starts. */
void deferred_async_shared_begins(void *dynamic, size_t bytes);

/* A block or cluster starts without pending warpgroup products: wgmma.cpp. */
void deferred_async_products_begin();

#pragma GCC visibility pop

#endif

#endif
