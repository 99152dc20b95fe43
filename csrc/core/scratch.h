/* Memory of a GPU that one launch needs beside its operands. */
#ifndef SGEMM_SCRATCH_H
#define SGEMM_SCRATCH_H

#include <stddef.h>

#include "status.h"
#include "variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Uninitialised memory, aligned to 256 bytes, for what is queued on where->stream until scratch_give,
 * which is owed after success. Neither waits for the GPU, unless it has too little memory: what is
 * idle there then goes back to it first. While the stream is captured into a CUDA graph the memory is
 * the graph's; where a device cannot have such, this is STATUS_INVALID. */
Status scratch_take(size_t bytes, const Launch *where, void **memory);
void scratch_give(void *memory, const Launch *where);

/* The same for counters, which are zero, and which the launch has to leave so: others have them then. */
Status counters_take(size_t count, const Launch *where, unsigned **counters);

/* The failure of a launch, by the runtime's number of the error: too little memory, or the device's
 * end if it cannot launch again. */
Status launch_failed(const Launch *where, int error);

#ifdef __cplusplus
}
#endif
#endif
