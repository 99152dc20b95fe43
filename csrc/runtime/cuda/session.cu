#include "session.h"

#include <pthread.h>

#include <atomic>
#ifdef SGEMM_HIP
#include <vector>
#else
#include <cuda.h>
#endif

#include "../../base/cuda/failures.h"

namespace {

#ifdef SGEMM_HIP
/* HIP has no separate contexts, so switching back with hipSetDevice creates nothing. */
thread_local std::vector<int> before; /* the previous device of each open session */

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

typedef cudaStreamCaptureMode CaptureMode;
constexpr CaptureMode relaxed = cudaStreamCaptureModeRelaxed;

bool exchange(CaptureMode *mode)
{
    return cudaThreadExchangeStreamCaptureMode(mode) == cudaSuccess;
}
#else
/* Sessions push and pop contexts through the driver API. Popping restores the previous state
 * exactly, even if no context or a caller's context was current. Going back with cudaSetDevice
 * would create a context on a GPU that this process has not used, which takes hundreds of
 * megabytes. */
struct Driver {
    decltype(&cuDeviceGet) device_get;
    decltype(&cuDevicePrimaryCtxRetain) retain;
    decltype(&cuCtxPushCurrent) push;
    decltype(&cuCtxPopCurrent) pop;
    decltype(&cuThreadExchangeStreamCaptureMode) exchange_mode;
};
Driver driver; /* written once, before driver_is_known */
std::atomic<bool> driver_is_known{false};
pthread_mutex_t driver_mutex = PTHREAD_MUTEX_INITIALIZER;
std::atomic<CUcontext> known_context[most_devices]; /* retained for the life of the process */

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
    error = error == cudaSuccess
                ? find_function("cuThreadExchangeStreamCaptureMode", &found.exchange_mode)
                : error;
    if (error == cudaSuccess) {
        driver = found;
        driver_is_known = true;
    }
    return error;
}

/* Retains the primary context, which the CUDA runtime uses for every library in the process. */
cudaError_t find_context(int index)
{
    CUdevice device;
    CUcontext context;
    pthread_mutex_lock(&driver_mutex);
    cudaError_t error = driver_is_known ? cudaSuccess : find_driver();
    if (error == cudaSuccess && !known_context[index]) {
        /* Driver and runtime errors have the same numbers. */
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

typedef CUstreamCaptureMode CaptureMode;
constexpr CaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

/* The runtime's function would create a context on the current GPU. */
bool exchange(CaptureMode *mode)
{
    if (!driver_is_known) {
        pthread_mutex_lock(&driver_mutex);
        if (!driver_is_known) {
            find_driver();
        }
        pthread_mutex_unlock(&driver_mutex);
    }
    return driver_is_known && driver.exchange_mode(mode) == CUDA_SUCCESS;
}
#endif

thread_local int relaxed_pairs; /* open in this thread */
thread_local bool was_exchanged;
thread_local CaptureMode mode_before;

} // namespace

void capture_relax(void)
{
    if (relaxed_pairs++ == 0) {
        mode_before = relaxed;
        was_exchanged = exchange(&mode_before);
    }
}

void capture_restore(void)
{
    if (--relaxed_pairs == 0 && was_exchanged) {
        exchange(&mode_before);
    }
}

Status session_open(int index)
{
    Status works = cuda_reachable();
    works = works.code == STATUS_OK ? device_works(index) : works;
    if (works.code != STATUS_OK) {
        return works;
    }
    works = device_checked(index, "making the GPU current", push(index));
    if (works.code == STATUS_OK) {
        capture_relax();
    }
    return works;
}

void session_close(void)
{
    capture_restore();
    pop();
}
