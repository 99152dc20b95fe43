/* A kernel that was compiled while the program runs, as the library that was made of it tells of it. */
#ifndef SGEMM_OWN_KERNEL_H
#define SGEMM_OWN_KERNEL_H

#include <stdint.h>

#include "interrupt.h"
#include "variant.h"

/* What the structs of variant.h look like: a library that was made by another version of this package
 * is not taken. */
enum { OWN_KERNEL_VERSION = 2 };

struct Counts;

/* What a library asks of the extension on a GPU. */
typedef struct OwnGpu {
    /* Launches blocks of the one kernel that NVRTC made of the same file. */
    Status (*launch)(const struct OwnGpu *gpu, const KernelSpec *spec, int64_t blocks,
                     const void *argument, const Launch *where);
    /* scratch.h's */
    Status (*scratch_take)(size_t bytes, const Launch *where, void **memory);
    void (*scratch_give)(void *memory, const Launch *where);
    Status (*launch_failed)(const Launch *where, int error);
} OwnGpu;

typedef struct {
    int version;            /* OWN_KERNEL_VERSION */
    const Variant *variant; /* launched where the library was made for */
    void (*use_cores)(int number,
                      int quota); /* usable_cores_set; NULL where there are no threads */
    /* count_block, in a counting build; else NULL. */
    Status (*count)(const Variant *variant, int64_t M, int64_t N, int64_t K,
                    const Interrupt *interrupt, struct Counts *counts);
    /* Has the library go by this struct, which stays, on GPUs. */
    void (*use_gpu)(const OwnGpu *gpu);
    /* Launches by use_gpu's struct what the library itself launches on the CPU; NULL in a library of
     * nvcc's, which has the GPU's code in itself, and in a counting build. */
    Launcher *launch_on_gpu;
} OwnKernel;

/* The library's one symbol, called sgemm_own_kernel. */
typedef const OwnKernel *OwnKernelGetter(void);

#if defined(SGEMM_OWN) && !defined(__CUDACC__)
/* In the library: not NULL while a launch is for a GPU. */
extern __thread const OwnGpu *own_gpu;
#endif

#endif
