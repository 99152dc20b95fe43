/* Who uses a matrix in device memory, in which streams, and until when. The buffer's device is current
 * where a function makes a CUDA call. */
#ifndef SGEMM_CUDA_DEVICE_BUFFER_H
#define SGEMM_CUDA_DEVICE_BUFFER_H

#include "device_arrays.h"

/* The functions of DeviceArrays. */
void buffer_share(DeviceBuffer *buffer);
void buffer_drop(DeviceBuffer *buffer);

/* Has the stream wait until work in it may read the buffer, or write it. */
Status buffer_await(DeviceBuffer *buffer, cudaStream_t stream, bool writes);

/* Notes that work is queued by now in the stream, which has awaited it, that reads or writes it. */
Status buffer_note(DeviceBuffer *buffer, cudaStream_t stream, bool writes);

/* The same of work that a CUDA graph does whenever it is replayed. */
void buffer_note_captured(DeviceBuffer *buffer);

/* Lends the buffer: see DeviceArrays. */
Status buffer_export(DeviceBuffer *buffer, cudaStream_t stream);

/* Whether all that the package has queued with it is done. */
bool buffer_is_ready(DeviceBuffer *buffer);

/* Ends buffers of the current device that nobody owns, and gives their memory back, where no work
 * uses it but such as is queued in this stream. Of those that were lent for work in streams that are
 * unknown, that is known only after a wait for the whole device: when many have come together, or
 * when `all` are to go. */
void buffers_collect(int device, cudaStream_t stream, bool all);

/* A stream waits for what is queued in another so far. */
cudaError_t stream_await(cudaStream_t stream, cudaStream_t other);

#endif
