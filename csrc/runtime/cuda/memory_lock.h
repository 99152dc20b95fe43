/* A shared/exclusive lock per GPU: calls wait for each other when memory is short. */
#ifndef SGEMM_CUDA_MEMORY_LOCK_H
#define SGEMM_CUDA_MEMORY_LOCK_H

#include "../../base/interrupt.h"

/* A call holds the shared lock while it uses memory that it will release before memory_unlock. It
 * must not wait for other calls meanwhile. */
void memory_lock_shared(int device);
void memory_unlock(int device);

/* Takes the exclusive lock: waits for all holders and blocks new ones until memory_unlock. If
 * memory is still short then, the call fails. The caller must not hold the lock. False if
 * interrupted. */
bool memory_lock_exclusive(int device, const Interrupt *interrupt);

#endif
