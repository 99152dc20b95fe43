/* The interface of a custom kernel's library: linked with the kernel, not with the extension. */
#include "../base/custom_kernel.h"

#ifndef __CUDACC__
#include "../base/threads.h"
#endif
#ifdef SGEMM_TRACED
#include "../emulator/access_trace/access_trace.h"
#endif

namespace {

const CustomGpu *gpu; /* set by the extension */

void use_gpu(const CustomGpu *to_use)
{
    gpu = to_use;
}

} // namespace

#ifdef SGEMM_TRACED
extern "C" const Variant *const __start_sgemm_traced[];
#define VARIANT_CUSTOM __start_sgemm_traced[0]
#else
#define VARIANT_CUSTOM &variant_custom
#endif

#ifdef __CUDACC__

extern "C" const CustomGpu *custom_gpu_of_library(void)
{
    return gpu;
}

#define PARTS                                                                                      \
    {                                                                                              \
        CUSTOM_KERNEL_VERSION, VARIANT_CUSTOM, nullptr, nullptr, use_gpu, nullptr                  \
    }

#elif defined(SGEMM_TRACED)

#define PARTS                                                                                      \
    {                                                                                              \
        CUSTOM_KERNEL_VERSION, VARIANT_CUSTOM, usable_cores_set, trace_block, nullptr, nullptr     \
    }

#else

static Status launch_on_gpu(const Sgemm *problem, const Launch *where)
{
    custom_gpu = gpu;
    const Status status = variant_custom.launch[DEVICE_CPU](problem, where);
    custom_gpu = nullptr;
    return status;
}

#define PARTS                                                                                      \
    {                                                                                              \
        CUSTOM_KERNEL_VERSION, VARIANT_CUSTOM, usable_cores_set, nullptr, use_gpu, launch_on_gpu   \
    }

#endif

extern "C" __attribute__((visibility("default"))) const CustomKernel *sgemm_custom_kernel()
{
    static const CustomKernel kernel = PARTS;
    return &kernel;
}
