/* Work in a stream of a GPU, from begin to end. */
#ifndef SGEMM_CUDA_STREAM_SCOPE_H
#define SGEMM_CUDA_STREAM_SCOPE_H

#include "device_arrays.h"
#include "failures.h"

/* The functions of DeviceArrays. */
Status scope_enter(int index, void *stream, StreamScope *scope);
void scope_leave(StreamScope *scope);
Status scope_wait_for_stream(StreamScope *scope, void *stream);
Status scope_use(StreamScope *scope, DeviceBuffer *buffer, bool writes);

/* The error of a call that is not captured and has an operand of a captured stream. */
Status scope_refuse_capture(void);

/* The scope's stream, and its device. */
static inline cudaStream_t stream_of(const StreamScope *scope)
{
    return static_cast<cudaStream_t>(scope->stream);
}

/* The failure of a call on the scope's device, or success: see device_checked. */
static inline Status scope_checked(const StreamScope *scope, const char *what, cudaError_t error)
{
    return device_checked(scope->device, what, error);
}

/* Memory for what the scope queues, which scope_give gives back after what it has queued. When there
 * is too little, what buffers had that nobody owns goes back first. */
Status scope_take(StreamScope *scope, size_t bytes, void **memory);
void scope_give(StreamScope *scope, void *memory);

/* Launches a variant in the scope's stream; likewise when memory is short. */
Status scope_launch(StreamScope *scope, const Variant *variant, const Sgemm *problem);

/* Queues a copy of an array's elements. */
Status scope_copy(StreamScope *scope, const Strided *to, const Strided *from);

/* Waits for all that the scope has queued. */
Status scope_finish(StreamScope *scope, const char *what);

#endif
