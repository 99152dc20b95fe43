/* Work in a stream of a GPU, from begin to end. */
#ifndef SGEMM_CUDA_VISIT_H
#define SGEMM_CUDA_VISIT_H

#include "device_arrays.h"
#include "failures.h"

/* The functions of DeviceArrays. */
Status visit_enter(int index, void *stream, Visit *visit);
void visit_leave(Visit *visit);
Status visit_wait_for_stream(Visit *visit, void *stream);
Status visit_use(Visit *visit, DeviceBuffer *buffer, bool writes);

/* The error of a call that is not captured and has an operand of a captured stream. */
Status visit_refuse_capture(void);

/* The visit's stream, and its device. */
static inline cudaStream_t stream_of(const Visit *visit)
{
    return static_cast<cudaStream_t>(visit->stream);
}

/* The failure of a call on the visit's device, or success: see device_checked. */
static inline Status visit_checked(const Visit *visit, const char *what, cudaError_t error)
{
    return device_checked(visit->device, what, error);
}

/* Memory for what the visit queues, which visit_give gives back after what it has queued. When there
 * is too little, what buffers had that nobody owns goes back first. */
Status visit_take(Visit *visit, size_t bytes, void **memory);
void visit_give(Visit *visit, void *memory);

/* Launches a variant in the visit's stream; likewise when memory is short. */
Status visit_launch(Visit *visit, const Variant *variant, const Sgemm *problem);

/* Queues a copy of an array's elements. */
Status visit_copy(Visit *visit, const Strided *to, const Strided *from);

/* Waits for all that the visit has queued. */
Status visit_finish(Visit *visit, const char *what);

#endif
