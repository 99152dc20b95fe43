/* Scratch memory in the library of a custom kernel that nvcc compiled. */
#include "../base/custom_kernel.h"
#include "../base/scratch.h"

extern "C" Status scratch_alloc(size_t bytes, const Launch *where, void **memory)
{
    return custom_gpu_of_library()->scratch_alloc(bytes, where, memory);
}

extern "C" void scratch_free(void *memory, const Launch *where)
{
    custom_gpu_of_library()->scratch_free(memory, where);
}

extern "C" Status launch_failed(const Launch *where, int error)
{
    return custom_gpu_of_library()->launch_failed(where, error);
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
