#include "session.h"

#include <pthread.h>

#include <atomic>
#ifdef SGEMM_HIP
#include <vector>
#else
#include <cuda.h>
#endif

#include "failures.h"

namespace {

#ifdef SGEMM_HIP
/* HIP's contexts are its devices, and to go back to one makes nothing on it. */
thread_local std::vector<int> before; /* sessions of this thread that are open: what was current */

cudaError_t push(int index)
{
    int current = 0;
    cudaError_t error = cudaGetDevice(&current);
    error = error == cudaSuccess ? cudaSetDevice(index) : error;
    if (error == cudaSuccess) {
        before.push_back(current);
    }
    return error;
}

void pop()
{
    cudaSetDevice(before.back());
    before.pop_back();
}
#else
/* The driver's own way to make a device current, after which is current what was so before, if that
 * was nothing at all, or a context of the caller's. To go back by cudaSetDevice would make a context
 * on a GPU that this process has not used, which takes hundreds of megabytes there. */
struct Driver {
    decltype(&cuDeviceGet) device_get;
    decltype(&cuDevicePrimaryCtxRetain) retain;
    decltype(&cuCtxPushCurrent) push;
    decltype(&cuCtxPopCurrent) pop;
};
Driver driver; /* written once, before the first context is known */
pthread_mutex_t driver_mutex = PTHREAD_MUTEX_INITIALIZER;
std::atomic<CUcontext> known_context[most_devices]; /* kept for good; the driver is known */

template <class Function> cudaError_t find_function(const char *name, Function *function)
{
    cudaDriverEntryPointQueryResult found;
    void **const address = reinterpret_cast<void **>(function);
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, address, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, address, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess && !*address ? cudaErrorSymbolNotFound : error;
}

cudaError_t find_driver()
{
    Driver found;
    cudaError_t error = find_function("cuDeviceGet", &found.device_get);
    error = error == cudaSuccess ? find_function("cuDevicePrimaryCtxRetain", &found.retain) : error;
    error = error == cudaSuccess ? find_function("cuCtxPushCurrent", &found.push) : error;
    error = error == cudaSuccess ? find_function("cuCtxPopCurrent", &found.pop) : error;
    if (error == cudaSuccess) {
        driver = found;
    }
    return error;
}

/* The context of a device that the CUDA runtime of every library in this process uses. */
cudaError_t find_context(int index)
{
    CUdevice device;
    CUcontext context;
    pthread_mutex_lock(&driver_mutex);
    cudaError_t error = driver.pop ? cudaSuccess : find_driver();
    if (error == cudaSuccess && !known_context[index]) {
        /* The driver's errors have the runtime's numbers. */
        error = static_cast<cudaError_t>(driver.device_get(&device, index));
        error = error == cudaSuccess ? static_cast<cudaError_t>(driver.retain(&context, device))
                                     : error;
        if (error == cudaSuccess) {
            known_context[index] = context;
        }
    }
    pthread_mutex_unlock(&driver_mutex);
    return error;
}

cudaError_t push(int index)
{
    const cudaError_t error = known_context[index] ? cudaSuccess : find_context(index);
    return error == cudaSuccess ? static_cast<cudaError_t>(driver.push(known_context[index]))
                                : error;
}

void pop()
{
    CUcontext ours;
    driver.pop(&ours);
}
#endif

} // namespace

Status session_open(int index)
{
    Status works = cuda_reachable();
    works = works.code == STATUS_OK ? device_works(index) : works;
    if (works.code != STATUS_OK) {
        return works;
    }
    return device_checked(index, "making the GPU current", push(index));
}

void session_close(void)
{
    pop();
}
