/* GPU machine code that is compiled at run time. */
#ifndef SGEMM_OWN_GPU_H
#define SGEMM_OWN_GPU_H

#include <stddef.h>

#include "own_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A custom kernel on GPUs, initially without machine code. It is never freed. NULL if out of
 * memory. */
OwnGpu *own_gpu_new(void);

/* Adds machine code for one compute capability, such as 90, which defines the kernel `symbol`.
 * Copies the bytes. */
Status own_gpu_add(OwnGpu *gpu, int capability, const void *code, size_t bytes, const char *symbol);

#ifdef __cplusplus
}
#endif
#endif
