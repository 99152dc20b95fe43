/* Machine code for GPUs, made while the program runs. */
#ifndef SGEMM_OWN_GPU_H
#define SGEMM_OWN_GPU_H

#include <stddef.h>

#include "own_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a kernel of a user's own goes by on GPUs, at first without code; it lasts as long as the process.
 * NULL if there is no memory. */
OwnGpu *own_gpu_new(void);

/* Adds machine code for GPUs of a compute capability, as 90, with one kernel under that symbol. The
 * bytes are copied. */
Status own_gpu_add(OwnGpu *gpu, int capability, const void *code, size_t bytes, const char *symbol);

#ifdef __cplusplus
}
#endif
#endif
