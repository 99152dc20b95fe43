// Memory for driver.cpp's operands, directly from the CUDA runtime. The package's own memory is
// cached and rounded up, which would hide out-of-bounds and uninitialized accesses from a checker.
#include <stddef.h>

#include "../../csrc/runtime/cuda/device_matrix.h"
#include "../../csrc/runtime/cuda/session.h"

extern "C" Status device_memory_open(void **stream)
{
    *stream = cudaStreamPerThread;
    return session_open(0);
}

/* Copies in the stream, and waits if the host will read the result. */
extern "C" Status device_memory_copy(const Matrix *to, const Matrix *from, bool to_host)
{
    cudaError_t error = device_matrix_copy(
        to, from, to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, cudaStreamPerThread);
    if (error == cudaSuccess && to_host) {
        error = cudaStreamSynchronize(cudaStreamPerThread);
    }
    return error == cudaSuccess ? status_ok()
                                : status_error(STATUS_DEVICE, "%s", cudaGetErrorString(error));
}

extern "C" float *device_memory_new(size_t bytes)
{
    void *memory = nullptr;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? static_cast<float *>(memory) : nullptr;
}

extern "C" void device_memory_delete(float *memory)
{
    cudaFree(memory);
}
