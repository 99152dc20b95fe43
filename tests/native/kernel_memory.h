/* For the checks of single kernels: random numbers, and memory that the kernels can access. */
#ifndef SGEMM_TESTS_KERNEL_MEMORY_H
#define SGEMM_TESTS_KERNEL_MEMORY_H

#include <stdlib.h>

#include <random>

#ifdef SGEMM_DEFERRED_ASYNC
/* A checking build needs a static array of shared memory. */
__shared__ float linked __attribute__((used));
#endif

namespace {

std::mt19937 randomness;

int below(int end)
{
    return static_cast<int>(randomness() % static_cast<unsigned>(end));
}

/* Memory that the kernels can access. */
float *allocate(size_t floats)
{
#ifdef __CUDACC__
    void *memory = nullptr;
    return cudaMallocManaged(&memory, floats * sizeof(float)) == cudaSuccess
               ? static_cast<float *>(memory)
               : nullptr;
#else
    return static_cast<float *>(aligned_alloc(256, (floats * sizeof(float) + 255) / 256 * 256));
#endif
}

void release(float *memory)
{
#ifdef __CUDACC__
    cudaFree(memory);
#else
    free(memory);
#endif
}

} // namespace

#endif
