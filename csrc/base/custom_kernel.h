/* The interface between the extension and the shared library of a custom kernel. */
#ifndef SGEMM_CUSTOM_KERNEL_H
#define SGEMM_CUSTOM_KERNEL_H

#include <stdint.h>

#include "interrupt.h"
#include "variant.h"

/* Increased when the structs here or in variant.h change. Libraries with another version are
 * refused. */
enum { CUSTOM_KERNEL_VERSION = 6 };

struct Counts;

/* The functions of the extension that a library calls to use a GPU. */
typedef struct CustomGpu {
    /* Launches the kernel that NVRTC compiled from the same file. */
    Status (*launch)(const struct CustomGpu *gpu, const KernelSpec *spec, int64_t blocks,
                     const void *argument, const Launch *where);
    /* As in scratch.h. */
    Status (*scratch_alloc)(size_t bytes, const Launch *where, void **memory);
    void (*scratch_free)(void *memory, const Launch *where);
    Status (*launch_failed)(const Launch *where, int error);
    /* For plain kernels. Launches the kernel of NVRTC with a grid and a block of three dimensions
     * and these arguments. */
    Status (*launch_shape)(const struct CustomGpu *gpu, const int64_t *grid, const int64_t *block,
                           int64_t shared_bytes, void **arguments, const Launch *where);
    /* Sets memory to zero; copies a matrix to another of the same size; C = alpha * X + beta * C,
     * where X without data is 0, and C is not read if beta is 0. */
    Status (*clear)(void *memory, size_t bytes, const Launch *where);
    Status (*copy)(const Matrix *to, const Matrix *from, const Launch *where);
    Status (*combine)(const Matrix *C, const Matrix *X, float alpha, float beta,
                      const Launch *where);
} CustomGpu;

typedef struct {
    int version;            /* CUSTOM_KERNEL_VERSION */
    const Variant *variant; /* with a launcher for the device that the library was compiled for */
    void (*use_cores)(int number,
                      int quota); /* usable_cores_set; NULL if the library starts no threads */
    /* trace_block in a traced build; otherwise NULL. */
    Status (*count)(const Variant *variant, int64_t batch, int64_t M, int64_t N, int64_t K,
                    const Interrupt *interrupt, struct Counts *counts);
    /* Sets the struct that the library uses on GPUs. It must outlive the library. */
    void (*use_gpu)(const CustomGpu *gpu);
    /* Launches the kernel on a GPU through the struct of use_gpu. NULL in a traced build, and in
     * a library that nvcc compiled, which contains the GPU code itself. */
    Launcher *launch_on_gpu;
} CustomKernel;

/* The type of sgemm_custom_kernel, the library's only exported symbol. */
typedef const CustomKernel *CustomKernelGetter(void);

/* In the library. */
#if defined(SGEMM_CUSTOM) && !defined(__CUDACC_RTC__)
extern "C" const Variant variant_custom; /* the catalog entry: in the kernel's file */
#ifdef __CUDACC__
extern "C" const CustomGpu *custom_gpu_of_library(void); /* the struct of use_gpu */
#else
inline __thread const CustomGpu *custom_gpu; /* not NULL during a launch on a GPU */
#endif
#endif

#endif
