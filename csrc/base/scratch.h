/* Temporary GPU memory for one launch. */
#ifndef SGEMM_SCRATCH_H
#define SGEMM_SCRATCH_H

#include <stddef.h>

#include "status.h"
#include "variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates uninitialised memory, aligned to 256 bytes, for work queued on where->stream. Callers
 * free it with scratch_free once that work is queued. Neither call waits for the GPU unless it
 * is out of memory; then idle memory is freed first. If the stream is being captured, the memory
 * belongs to the CUDA graph; STATUS_INVALID if the device does not support that. */
Status scratch_alloc(size_t bytes, const Launch *where, void **memory);
void scratch_free(void *memory, const Launch *where);

/* Allocates counters that are zero. The launch must reset them to zero, because later launches
 * reuse them. */
Status counters_alloc(size_t count, const Launch *where, unsigned **counters);

/* The status for a failed launch, given the runtime's error number: out of memory, or a device
 * failure if the device cannot launch again. */
Status launch_failed(const Launch *where, int error);

#ifdef __cplusplus
}
#endif
#endif
