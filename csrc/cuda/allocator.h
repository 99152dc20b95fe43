/* The memory of a GPU that this process has: one allocator for operands, results and scratch. */
#ifndef SGEMM_CUDA_ALLOCATOR_H
#define SGEMM_CUDA_ALLOCATOR_H

#include <stddef.h>

#include "../core/status.h"

/* Uninitialised memory of the current device, which is device number `device`, aligned to 256 bytes,
 * for what is queued in `stream` from now on, or with NULL in any stream; NULL for no bytes. It goes
 * back by one of the next two. When the GPU has too little, what is idle is given back to it first;
 * then this is out of memory. */
Status allocator_take(int device, size_t bytes, cudaStream_t stream, void **memory);

/* Gives memory back that no queued work uses any more. */
void allocator_give(int device, void *memory);

/* Gives memory back that work uses which is queued in this stream: at once to what is queued there
 * next, and to others later. allocator_settle is owed before the stream may end. */
void allocator_give_after(int device, void *memory, cudaStream_t stream);

/* Ends the use of a stream: marks where in it the memory that was given back after work in it is free
 * for others; when that work is `done` it is so now. The device is current. */
void allocator_settle(int device, cudaStream_t stream, bool done);

/* Gives a device's idle memory back to it, after a wait for all of its work. The device is current. */
void allocator_trim(int device);

/* Waits for all work of the current device, without an end to the graph captures that other threads
 * have begun on it. */
cudaError_t device_wait(void);

/* Whether this process has memory of a device, in use or idle. */
bool allocator_is_used(int device);

/* Bytes of the current device that allocator_take could still find, all that is idle given back. */
Status allocator_available(int device, size_t *bytes);

#endif
