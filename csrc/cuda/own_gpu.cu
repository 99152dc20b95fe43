/* Loads and launches custom kernels that NVRTC compiled at run time. */
#include "../core/own_gpu.h"

#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "../core/scratch.h"
#include "../ladder/launch_kernel.h"
#include "session.h"

namespace {

constexpr int most_capabilities = 8; /* different GPUs in one machine */

struct Code {
    int capability;
    cudaKernel_t kernel;
};

/* `gpu` must be first: the extension holds a pointer to it. */
struct Codes {
    OwnGpu gpu;
    std::atomic<int> count; /* entries below it never change */
    Code codes[most_capabilities];
};

Status launch(const OwnGpu *gpu, const KernelSpec *spec, int64_t blocks, const void *argument,
              const Launch *where)
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
            const void *const kernel = reinterpret_cast<const void *>(codes->codes[index].kernel);
            return launch_kernel(kernel, spec, blocks, argument, where);
        }
    }
    return status_error(STATUS_UNSUPPORTED,
                        "the kernel was not compiled for " GPU_KIND
                        ":%d, which has compute capability %d.%d",
                        where->device, major, minor);
}

} // namespace

extern "C" OwnGpu *own_gpu_new(void)
{
    Codes *const codes = static_cast<Codes *>(calloc(1, sizeof *codes));
    if (!codes) {
        return nullptr;
    }
    codes->gpu = {launch, scratch_take, scratch_give, launch_failed};
    return &codes->gpu;
}

extern "C" Status own_gpu_add(OwnGpu *gpu, int capability, const void *code, size_t bytes,
                              const char *symbol)
{
    Codes *const codes = reinterpret_cast<Codes *>(gpu);
    if (codes->count == most_capabilities) {
        return status_error(STATUS_UNSUPPORTED,
                            "a kernel can have code for at most %d compute capabilities",
                            most_capabilities);
    }
    void *const copy =
        malloc(bytes); /* never freed: CUDA may read it when a device first needs the kernel */
    if (!copy) {
        return status_error(STATUS_OUT_OF_MEMORY, "no host memory for a kernel's machine code");
    }
    memcpy(copy, code, bytes);
    cudaLibrary_t library;
    cudaKernel_t kernel = nullptr;
    capture_relax();
    cudaError_t error =
        cudaLibraryLoadData(&library, copy, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (error == cudaSuccess) {
        error = cudaLibraryGetKernel(&kernel, library, symbol);
        if (error != cudaSuccess) {
            cudaLibraryUnload(library);
        }
    }
    capture_restore();
    if (error != cudaSuccess) {
        free(copy);
        cudaGetLastError();
        return status_error(
            error == cudaErrorMemoryAllocation ? STATUS_OUT_OF_MEMORY : STATUS_DEVICE,
            "the kernel's machine code could not be loaded: %s", cudaGetErrorString(error));
    }
    codes->codes[codes->count] = {capability, kernel};
    ++codes->count;
    return status_ok();
}
