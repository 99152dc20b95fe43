/* A pool of pinned host memory, which a GPU can copy from and to without staging.
 *
 * A block may be returned at any time and from any thread: returning it calls no device and takes
 * no lock. Taking a block may pin memory, and unpins memory beyond the limit. */
#ifndef SGEMM_PINNED_H
#define SGEMM_PINNED_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PinnedBlock PinnedBlock;

/* Bytes in blocks that are in use, bytes in idle blocks, and the limit for their sum. */
typedef struct {
    int64_t live, idle, limit;
} PinnedAccount;

/* Takes a block of at least `bytes`, uninitialised and aligned to 64 bytes, for copies to and from
 * any device. Device number `index` pins new memory. NULL if the caller must use ordinary memory:
 * beyond the limit, if pinning fails, for 0 bytes, and in a forked child. */
PinnedBlock *pinned_alloc(const Device *device, int index, size_t bytes);

/* The address of a block's memory. */
void *pinned_memory(const PinnedBlock *block);

/* Returns a block to the pool. Does nothing for NULL. */
void pinned_free(PinnedBlock *block);

/* Whether all these bytes are inside one slab of the pool, in use or idle. */
bool pinned_holds(const void *memory, size_t bytes);

PinnedAccount pinned_account(void);

/* Sets the limit; a negative one counts as 0. Unpins idle memory beyond it. Blocks in use stay, and
 * count. */
void pinned_set_limit(int64_t bytes);

/* Unpins all slabs without blocks in use. */
void pinned_empty(void);

#ifdef __cplusplus
}
#endif
#endif
