/* Host memory that a GPU copies from and to by itself: pinned, and kept from result to result.
 *
 * A block belongs to whoever took it, until it is given back, at any time and from any thread:
 * giving back touches no device and waits for nobody. Pinning and unpinning happen while taking. */
#ifndef SGEMM_PINNED_H
#define SGEMM_PINNED_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PinnedBlock PinnedBlock;

/* Bytes: in blocks that are taken, in those that are not, and how many both may be. */
typedef struct {
    int64_t live, idle, limit;
} PinnedAccount;

/* At least so many bytes, uninitialised and aligned to 64, for copies to and from any device; new
 * memory is pinned by device number `index`. NULL where ordinary memory has to serve: beyond the
 * limit, when pinning is refused, for no bytes, and in a forked child. */
PinnedBlock *pinned_take(const Device *device, int index, size_t bytes);

/* Where a block's memory is. */
void *pinned_memory(const PinnedBlock *block);

/* Gives a block back; NULL is none. */
void pinned_give(PinnedBlock *block);

/* Whether all these bytes are in one piece of this memory, taken or not. */
bool pinned_holds(const void *memory, size_t bytes);

PinnedAccount pinned_account(void);

/* Sets the limit, at least 0. What is idle beyond it is unpinned; what is taken stays, and counts. */
void pinned_set_limit(int64_t bytes);

/* Unpins what is idle. */
void pinned_empty(void);

#ifdef __cplusplus
}
#endif
#endif
