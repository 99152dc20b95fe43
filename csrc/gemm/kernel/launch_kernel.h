/* Launches a kernel on a GPU through the CUDA runtime, as its KernelSpec describes it. */
#ifndef SGEMM_KERNELS_LAUNCH_KERNEL_H
#define SGEMM_KERNELS_LAUNCH_KERNEL_H

#include "../../base/scratch.h"
#include "../../base/sgemm.h"
#include "../../base/variant.h"

/* Calls the runtime for launch_kernel. */
#ifdef SGEMM_HIP
/* AMD GPUs have no clusters and start no kernel early, and a launch needs no attribute for a large
 * amount of shared memory. */
static inline cudaError_t begin_kernel(const void *kernel, const KernelSpec *spec, int64_t blocks,
                                       int64_t matrices, const void *argument, const Launch *where)
{
    void *arguments[] = {const_cast<void *>(argument)};
    return cudaLaunchKernel(
        kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(matrices)),
        dim3(static_cast<unsigned>(spec->threads[0]), static_cast<unsigned>(spec->threads[1])),
        arguments, static_cast<size_t>(spec->dynamic_bytes),
        static_cast<cudaStream_t>(where->stream));
}
#else
static inline cudaError_t begin_kernel(const void *kernel, const KernelSpec *spec, int64_t blocks,
                                       int64_t matrices, const void *argument, const Launch *where)
{
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(matrices));
    config.blockDim =
        dim3(static_cast<unsigned>(spec->threads[0]), static_cast<unsigned>(spec->threads[1]));
    config.dynamicSmemBytes = static_cast<size_t>(spec->dynamic_bytes);
    config.stream = static_cast<cudaStream_t>(where->stream);
    config.attrs = attributes;
    if (spec->cluster > 1) {
        cudaLaunchAttribute *const cluster = &attributes[config.numAttrs++];
        cluster->id = cudaLaunchAttributeClusterDimension;
        cluster->val.clusterDim.x = static_cast<unsigned>(spec->cluster);
        cluster->val.clusterDim.y = cluster->val.clusterDim.z = 1;
    }
    cudaError_t error = cudaSuccess;
    if (spec->dynamic_bytes > 48 * 1024) { /* needs an attribute */
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     spec->dynamic_bytes);
    }
    if (error == cudaSuccess && spec->overlaps) {
        /* Code for less than 9.0 has no griddepcontrol.wait, so it must not start early. */
        cudaFuncAttributes code;
        error = cudaFuncGetAttributes(&code, kernel);
        if (error == cudaSuccess && code.ptxVersion >= 90) {
            cudaLaunchAttribute *const early = &attributes[config.numAttrs++];
            early->id = cudaLaunchAttributeProgrammaticStreamSerialization;
            early->val.programmaticStreamSerializationAllowed = 1;
        }
    }
    void *arguments[] = {const_cast<void *>(argument)};
    return error == cudaSuccess ? cudaLaunchKernelExC(&config, kernel, arguments) : error;
}
#endif

/* Launches blocks x matrices blocks of a kernel with its one argument. `kernel` is the address of a
 * __global__ function, or a cudaKernel_t. */
static inline Status launch_kernel(const void *kernel, const KernelSpec *spec, int64_t blocks,
                                   int64_t matrices, const void *argument, const Launch *where)
{
    const cudaError_t error = begin_kernel(kernel, spec, blocks, matrices, argument, where);
    return error == cudaSuccess ? status_ok() : launch_failed(where, error);
}

#endif
