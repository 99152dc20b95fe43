/* In a checking build what is asynchronous happens as late as its rules allow: a copy lands when it is
 * waited for, and its place holds NaN until then. What reads it sooner, and what writes where a copy is
 * on its way or a product may still read, is found. */
#ifndef SGEMM_CPU_LATE_H
#define SGEMM_CPU_LATE_H

#include "grid.h"

#ifdef SGEMM_LATE

#pragma GCC visibility push(hidden)

/* Shared memory as copies of boxes and products by warpgroups see it, which is not what threads have
 * written but what they had at the last proxy fence: the byte that stands for this one. Ends the launch
 * with an error where no shared memory of the block is: neither reaches another's of its cluster. */
void *late_view(const void *shared, int line);

/* Has the view of the block's shared memory show what threads have written. */
void late_view_all();

/* Up to 16 bytes are on their way to shared memory, which holds NaN now; this thread waits for them. */
void late_copy(void *to, const void *data, int bytes, int line);

/* What this thread has begun to copy, and is in no group, is one group. */
void late_commit();

/* Of this thread's groups all but the newest `left` land. */
void late_wait(int left);

/* What this thread has begun to copy also lands when somebody has waited for the barrier's phase. */
void late_attach(const uint64_t *barrier, int parity);

/* A box is on its way to shared memory, where NaN lies until it lands, when somebody has waited for the
 * barrier's phase. */
void late_box(void *to, const void *data, int bytes, const uint64_t *barrier, int parity, int line);

/* Somebody has waited for the barrier's phase of this parity. */
void late_land(const uint64_t *barrier, int parity);

/* A product of this line may read these bytes from now on; or no more. */
void late_read_begins(const void *from, int bytes, int line);
void late_read_ends(const void *from, int line);

/* A block begins, or a cluster, in whose shared memory nobody has written; or ends, and all must have
 * landed. */
void late_block_begins();
void late_block_ends();

/* Of the block, or of another of the cluster, that begins: its dynamic shared memory. */
void late_shared_begins(void *dynamic, size_t bytes);

/* A block begins, or a cluster, in which no warpgroup has begun a product: wgmma.cpp. */
void late_products_begin();

#pragma GCC visibility pop

#endif

#endif
