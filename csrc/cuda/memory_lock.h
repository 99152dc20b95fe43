/* How calls wait for each other when a GPU's memory is short. */
#ifndef SGEMM_CUDA_MEMORY_LOCK_H
#define SGEMM_CUDA_MEMORY_LOCK_H

#include "../core/interrupt.h"

/* A call that gives all its memory back when it ends takes a turn beside others, and ends it then. It
 * waits for no other call meanwhile. */
void memory_lock_shared(int device);
void memory_unlock(int device);

/* Waits until no call has a turn, and blocks new turns until memory_unlock. A call that still finds too
 * little memory fails for good. The caller must not have a turn. False when interrupted. */
bool memory_lock_exclusive(int device, const Interrupt *interrupt);

#endif
