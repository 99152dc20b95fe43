/* The interface of a custom kernel's library: linked with the kernel, not with the extension. */
#define SGEMM_CUSTOM 1
#include "../base/custom_kernel.h"

#ifdef __CUDACC__
#include "../base/scratch.h"
#else
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
extern "C" const Variant *const __start_sgemm_counted[];
#define VARIANT_CUSTOM __start_sgemm_counted[0]
#else
extern "C" const Variant variant_custom; /* defined in the kernel's file: ../kernel/launch.h */
#define VARIANT_CUSTOM &variant_custom
#endif

#ifdef __CUDACC__

extern "C" const CustomGpu *custom_gpu_of_library(void); /* for plain.cpp */
extern "C" const CustomGpu *custom_gpu_of_library(void)
{
    return gpu;
}

extern "C" Status scratch_alloc(size_t bytes, const Launch *where, void **memory)
{
    return gpu->scratch_alloc(bytes, where, memory);
}

extern "C" void scratch_free(void *memory, const Launch *where)
{
    gpu->scratch_free(memory, where);
}

extern "C" Status launch_failed(const Launch *where, int error)
{
    return gpu->launch_failed(where, error);
}

/* Cleared for each launch, so that a kernel that leaves wrong counts does not affect another. */
extern "C" Status counters_alloc(size_t count, const Launch *where, unsigned **counters)
{
    void *memory;
    const Status status = scratch_alloc(count * sizeof **counters, where, &memory);
    *counters = static_cast<unsigned *>(memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    const cudaError_t error = cudaMemsetAsync(memory, 0, count * sizeof **counters,
                                              static_cast<cudaStream_t>(where->stream));
    if (error != cudaSuccess) {
        scratch_free(memory, where);
        return status_error(STATUS_DEVICE, "clearing counters: %s", cudaGetErrorString(error));
    }
    return status;
}

#define PARTS                                                                                      \
    {                                                                                              \
        CUSTOM_KERNEL_VERSION, VARIANT_CUSTOM, nullptr, nullptr, use_gpu, nullptr                  \
    }

#elif defined(SGEMM_TRACED)

#define PARTS                                                                                      \
    {                                                                                              \
        CUSTOM_KERNEL_VERSION, VARIANT_CUSTOM, usable_cores_set, count_block, nullptr, nullptr     \
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
