/* GPU machine code that is compiled at run time. */
#ifndef SGEMM_CUSTOM_GPU_H
#define SGEMM_CUSTOM_GPU_H

#include <stddef.h>

#include "../base/custom_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The GPU side of a custom kernel's library, initially without machine code. NULL if out of
 * memory. */
CustomGpu *custom_gpu_new(void);

/* Loads machine code for one compute capability, such as 90, which defines the kernel `symbol`.
 * Copies the bytes. Does nothing if the library has code for this capability. */
Status custom_gpu_add(CustomGpu *gpu, int capability, const void *code, size_t bytes,
                      const char *symbol);

/* Unloads the machine code, closes the library (from dlopen) and frees `gpu`. No launch may be in
 * progress. In a forked child of a process that used CUDA this does nothing: CUDA must not be
 * called there. */
void custom_gpu_close(CustomGpu *gpu, const CustomKernel *code, void *library);

#ifdef __cplusplus
}
#endif
#endif
