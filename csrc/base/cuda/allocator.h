/* A caching allocator for GPU memory: operands, results and scratch all use it. */
#ifndef SGEMM_CUDA_ALLOCATOR_H
#define SGEMM_CUDA_ALLOCATOR_H

#include <stddef.h>

#include "../status.h"

/* Allocates uninitialised memory, aligned to 256 bytes, on the current device, which must be number
 * `device`. Work queued in `stream` from now on may use it; with a NULL stream, work in any stream.
 * Zero bytes give NULL. If the GPU has too little memory, the cached memory is freed before this
 * fails. One of the next two functions returns the memory. */
Status allocator_alloc(int device, size_t bytes, cudaStream_t stream, void **memory);

/* Returns memory that no queued work uses. */
void allocator_free(int device, void *memory);

/* Returns memory that work queued in this stream still uses. Later work in the same stream may take
 * it at once; other streams get it later. Call allocator_settle before the stream is destroyed. */
void allocator_free_after(int device, void *memory, cudaStream_t stream);

/* Ends the use of a stream. Records an event for the memory that allocator_free_after returned in
 * it, so that other streams can take it after that event; if the work is `done`, they can take it
 * now. The device must be current. */
void allocator_settle(int device, cudaStream_t stream, bool done);

/* Waits for all work on the device and frees its cached memory. The device must be current. */
void allocator_trim(int device);

/* Waits for all work on the current device. Graph captures by other threads continue. */
cudaError_t device_wait(void);

/* True if this process holds memory of the device, in use or cached. */
bool allocator_is_used(int device);

/* Frees the cached memory and returns the number of free bytes on the current device. */
Status allocator_available(int device, size_t *bytes);

#endif
