/* StreamScope: a thread queues work in one stream of a GPU between scope_enter and scope_leave. */
#ifndef SGEMM_CUDA_STREAM_SCOPE_H
#define SGEMM_CUDA_STREAM_SCOPE_H

#include "../../base/addend.h"
#include "../../base/cuda/failures.h"
#include "device_arrays.h"

/* See DeviceArrays. */
Status scope_enter(int index, void *stream, StreamScope *scope);
void scope_leave(StreamScope *scope);
Status scope_wait_for_stream(StreamScope *scope, void *stream);
Status scope_use(StreamScope *scope, DeviceBuffer *buffer, bool writes);

Status scope_use_pairs(StreamScope *scope, DeviceBuffer *pairs, const Strided *B);

/* Notes that the scope's work uses a buffer that no other work uses. */
void scope_add(StreamScope *scope, DeviceBuffer *buffer, bool writes);

/* The error for an operand whose stream is being captured when the scope's stream is not. */
Status scope_refuse_capture(void);

static inline cudaStream_t stream_of(const StreamScope *scope)
{
    return static_cast<cudaStream_t>(scope->stream);
}

static inline Status scope_checked(const StreamScope *scope, const char *what, cudaError_t error)
{
    return device_checked(scope->device, what, error);
}

/* Allocates memory for the scope's work; scope_free returns it after the work queued so far. If
 * memory is short, buffers without owners are freed first. */
Status scope_alloc(StreamScope *scope, size_t bytes, void **memory);
void scope_free(StreamScope *scope, void *memory);

/* Launches a variant in the scope's stream. If memory is short, frees buffers and tries again.
 * `types` are those of the elements of A and B, if not float32. */
Status scope_launch(StreamScope *scope, const Variant *variant, const Sgemm *problem,
                    const Addend *addend = nullptr, const ElementType *types = nullptr);

/* Launches many products of different shapes. */
Status scope_launch_many(StreamScope *scope, const Variant *variant, const Sgemm *problems,
                         int64_t count);

/* Queues a copy of an array's elements. */
Status scope_copy(StreamScope *scope, const Strided *to, const Strided *from);

/* Waits for all work queued in the scope. */
Status scope_finish(StreamScope *scope, const char *what);

#endif
