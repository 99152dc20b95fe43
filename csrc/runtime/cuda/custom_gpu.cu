/* Loads and launches custom kernels that NVRTC compiled at run time. */
#include "../custom_gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "../../base/scratch.h"
#include "../../gemm/kernel/launch_kernel.h"
#include "session.h"
#include "strided_copy.h"

namespace {

constexpr int most_capabilities = 8; /* among the GPUs of one machine */

struct Code {
    int capability;
    cudaKernel_t kernel;
    cudaLibrary_t library;
    void *bytes; /* the driver may read them until the library is unloaded */
};

/* The extension has a pointer to `gpu`, the first member. */
struct Codes {
    CustomGpu gpu;
    std::atomic<int> count; /* launches read codes[0..count), whose entries never change */
    Code codes[most_capabilities];
};

pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* The kernel for the compute capability of the launch's device. */
Status find_kernel(const CustomGpu *gpu, const Launch *where, const void **kernel)
{
    const Codes *const codes = reinterpret_cast<const Codes *>(gpu);
    int major = 0, minor = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, where->device);
    error = error == cudaSuccess
                ? cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, where->device)
                : error;
    if (error != cudaSuccess) {
        return launch_failed(where, error);
    }
    for (int index = 0; index < codes->count; ++index) {
        if (codes->codes[index].capability == 10 * major + minor) {
            *kernel = reinterpret_cast<const void *>(codes->codes[index].kernel);
            return status_ok();
        }
    }
    return status_error(STATUS_UNSUPPORTED,
                        "the kernel was not compiled for " GPU_KIND
                        ":%d, which has compute capability %d.%d",
                        where->device, major, minor);
}

Status launch(const CustomGpu *gpu, const KernelSpec *spec, int64_t blocks, const void *argument,
              const Launch *where)
{
    const void *kernel = nullptr;
    const Status status = find_kernel(gpu, where, &kernel);
    return status.code == STATUS_OK ? launch_kernel(kernel, spec, blocks, 1, argument, where)
                                    : status;
}

Status result_of(cudaError_t error, const Launch *where)
{
    return error == cudaSuccess ? status_ok() : launch_failed(where, error);
}

dim3 dim3_of(const int64_t *size)
{
    return dim3(static_cast<unsigned>(size[0]), static_cast<unsigned>(size[1]),
                static_cast<unsigned>(size[2]));
}

Status launch_shape(const CustomGpu *gpu, const int64_t *grid, const int64_t *block,
                    int64_t shared_bytes, void **arguments, const Launch *where)
{
    const void *kernel = nullptr;
    const Status status = find_kernel(gpu, where, &kernel);
    if (status.code != STATUS_OK) {
        return status;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3_of(grid);
    config.blockDim = dim3_of(block);
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = static_cast<cudaStream_t>(where->stream);
    cudaError_t error = cudaSuccess;
    if (shared_bytes > 48 * 1024) { /* needs an attribute */
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes));
    }
    error = error == cudaSuccess ? cudaLaunchKernelExC(&config, kernel, arguments) : error;
    return result_of(error, where);
}

/* By a kernel, since the memory may be pinned host memory. */
Status clear(void *memory, size_t bytes, const Launch *where)
{
    const auto count = static_cast<int64_t>(bytes / sizeof(float));
    const Matrix all = {static_cast<float *>(memory), 1, count, count, 1}, nothing = {};
    return result_of(launch_combine(&all, &nothing, 0.0f, 0.0f, where->stream), where);
}

Status copy(const Matrix *to, const Matrix *from, const Launch *where)
{
    const Strided target = strided_of_matrix(to), source = strided_of_matrix(from);
    return result_of(launch_strided_copy(&target, &source, where->stream), where);
}

Status combine(const Matrix *C, const Matrix *X, float alpha, float beta, const Launch *where)
{
    return result_of(launch_combine(C, X, alpha, beta, where->stream), where);
}

/* If the driver refuses, it may still read the bytes: they are then not freed. */
void unload(Code *loaded)
{
    if (cudaLibraryUnload(loaded->library) == cudaSuccess) {
        free(loaded->bytes);
    }
}

Status load(const void *code, size_t bytes, const char *symbol, Code *loaded)
{
    loaded->bytes = malloc(bytes);
    if (!loaded->bytes) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for a kernel's code");
    }
    memcpy(loaded->bytes, code, bytes);
    capture_relax();
    cudaError_t error = cudaLibraryLoadData(&loaded->library, loaded->bytes, nullptr, nullptr, 0,
                                            nullptr, nullptr, 0);
    if (error != cudaSuccess) {
        free(loaded->bytes);
    } else {
        error = cudaLibraryGetKernel(&loaded->kernel, loaded->library, symbol);
        if (error != cudaSuccess) {
            unload(loaded);
        }
    }
    capture_restore();
    if (error != cudaSuccess) {
        cudaGetLastError();
        return status_error(
            error == cudaErrorMemoryAllocation ? STATUS_OUT_OF_MEMORY : STATUS_DEVICE,
            "the GPU's code of the kernel could not be loaded: %s", cudaGetErrorString(error));
    }
    return status_ok();
}

Status add(Codes *codes, int capability, const void *code, size_t bytes, const char *symbol)
{
    for (int index = 0; index < codes->count; ++index) {
        if (codes->codes[index].capability == capability) {
            return status_ok();
        }
    }
    if (codes->count == most_capabilities) {
        return status_error(STATUS_UNSUPPORTED,
                            "a kernel can have code for at most %d kinds of GPU",
                            most_capabilities);
    }
    Code *const next = &codes->codes[codes->count];
    next->capability = capability;
    const Status status = load(code, bytes, symbol, next);
    if (status.code == STATUS_OK) {
        ++codes->count;
    }
    return status;
}

} // namespace

extern "C" CustomGpu *custom_gpu_new(void)
{
    Codes *const codes = static_cast<Codes *>(calloc(1, sizeof *codes));
    if (!codes) {
        return nullptr;
    }
    codes->gpu = {launch,       scratch_alloc, scratch_free, launch_failed,
                  launch_shape, clear,         copy,         combine};
    return &codes->gpu;
}

extern "C" Status custom_gpu_add(CustomGpu *gpu, int capability, const void *code, size_t bytes,
                                 const char *symbol)
{
    pthread_mutex_lock(&adding);
    const Status status = add(reinterpret_cast<Codes *>(gpu), capability, code, bytes, symbol);
    pthread_mutex_unlock(&adding);
    return status;
}

extern "C" void custom_gpu_close(CustomGpu *gpu, const CustomKernel *code, void *library)
{
    if (cuda_reachable().code != STATUS_OK) {
        return;
    }
    Codes *const codes = reinterpret_cast<Codes *>(gpu);
    /* nvcc's libraries have no launch_on_gpu. Closing one unloads its machine code. */
    const bool has_gpu_code = codes->count > 0 || !code->launch_on_gpu;
    if (has_gpu_code) {
        capture_relax();
    }
    for (int index = 0; index < codes->count; ++index) {
        unload(&codes->codes[index]);
    }
    dlclose(library);
    if (has_gpu_code) {
        cudaGetLastError();
        capture_restore();
    }
    free(codes);
}
