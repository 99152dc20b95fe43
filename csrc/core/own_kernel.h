/* The interface between the extension and the library of a custom kernel. */
#ifndef SGEMM_OWN_KERNEL_H
#define SGEMM_OWN_KERNEL_H

#include <stdint.h>

#include "interrupt.h"
#include "variant.h"

/* The layout of the structs in variant.h. Libraries of another version are refused. */
enum { OWN_KERNEL_VERSION = 2 };

struct Counts;

/* Functions of the extension that a library calls on a GPU. */
typedef struct OwnGpu {
    /* Launches blocks of the kernel that NVRTC compiled from the same file. */
    Status (*launch)(const struct OwnGpu *gpu, const KernelSpec *spec, int64_t blocks,
                     const void *argument, const Launch *where);
    /* From scratch.h. */
    Status (*scratch_take)(size_t bytes, const Launch *where, void **memory);
    void (*scratch_give)(void *memory, const Launch *where);
    Status (*launch_failed)(const Launch *where, int error);
} OwnGpu;

typedef struct {
    int version; /* OWN_KERNEL_VERSION */
    const Variant *variant;
    void (*use_cores)(int number, int quota); /* usable_cores_set; NULL in nvcc's libraries */
    /* count_block in a counting build; otherwise NULL. */
    Status (*count)(const Variant *variant, int64_t M, int64_t N, int64_t K,
                    const Interrupt *interrupt, struct Counts *counts);
    /* Sets the struct that the library uses on GPUs. It must outlive the library. */
    void (*use_gpu)(const OwnGpu *gpu);
    /* Launches on a GPU, through use_gpu's struct. NULL in a counting build, and in libraries of
     * nvcc, which contain GPU code. */
    Launcher *launch_on_gpu;
} OwnKernel;

/* The library's only exported symbol is sgemm_own_kernel. */
typedef const OwnKernel *OwnKernelGetter(void);

#if defined(SGEMM_OWN) && !defined(__CUDACC__)
/* In the library: not NULL during a launch on a GPU. */
extern __thread const OwnGpu *own_gpu;
#endif

#endif
