/* Tracks which streams use a matrix in device memory. The buffer's device must be current, except
 * for buffer_share and buffer_drop. */
#ifndef SGEMM_CUDA_DEVICE_BUFFER_H
#define SGEMM_CUDA_DEVICE_BUFFER_H

#include "device_arrays.h"

/* The functions of DeviceArrays. */
void buffer_share(DeviceBuffer *buffer);
void buffer_drop(DeviceBuffer *buffer);

/* A number for the stream that no later stream has, even with the same handle; 0 if there is none.
 * Work in a stream needs no event to follow earlier work in the same stream. */
unsigned long long order_of(cudaStream_t stream);

/* The stream waits until work in it may read or write the buffer. `order` is order_of(stream). */
Status buffer_await(DeviceBuffer *buffer, cudaStream_t stream, unsigned long long order,
                    bool writes);

/* Records that the work now queued in the scope's stream uses the buffers in scope->used. Call
 * buffer_await for them before. */
Status buffers_note(const StreamScope *scope);

/* The same for work captured into a CUDA graph, which may replay at any time. */
void buffer_note_captured(DeviceBuffer *buffer);

/* See DeviceArrays.export_to. */
Status buffer_export(DeviceBuffer *buffer, cudaStream_t stream);

/* True if all work that the package queued on the buffer is done. */
bool buffer_is_ready(DeviceBuffer *buffer);

/* Frees buffers of the current device that have no owner and that only work in this stream still
 * uses. Buffers exported to unknown streams need a wait for the whole device. That happens when
 * many have accumulated, or if `all` must be freed. */
void buffers_collect(int device, cudaStream_t stream, bool all);

/* A stream waits for the work queued so far in another. */
cudaError_t stream_await(cudaStream_t stream, cudaStream_t other);

#endif
