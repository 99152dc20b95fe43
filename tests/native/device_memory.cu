// Memory for the operands of driver.cpp, from the CUDA runtime itself: what the package keeps from
// call to call, and rounds up, would hide from a checker what a kernel touches beyond an operand,
// or reads unset.
#include <stddef.h>

#include "../../csrc/cuda/device_matrix.h"
#include "../../csrc/cuda/session.h"

extern "C" Status device_memory_open(void **stream)
{
    *stream = cudaStreamPerThread;
    return session_open(0);
}

/* Copies in the stream, and waits for what is to be read on the host. */
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
