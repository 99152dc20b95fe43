#include "failures.h"

#include <pthread.h>
#include <stdlib.h>

#include "../scratch.h"

namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Status *ends[most_devices]; /* why a device is unusable, or NULL; never freed */

/* Sticky errors: afterwards every call on the device fails until the process restarts. */
bool is_final(cudaError_t error)
{
    switch (static_cast<int>(error)) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorContextIsDestroyed:
        return true;
    default:
        return false;
    }
}

Status remember_end(int device, const Status *status)
{
    pthread_mutex_lock(&mutex);
    if (!ends[device]) {
        Status *const end = static_cast<Status *>(malloc(sizeof(Status)));
        if (end) {
            *end = status_error(STATUS_DEVICE,
                                GPU_KIND ":%d is unusable until this process is restarted: %.400s",
                                device, status->message);
            __atomic_store_n(&ends[device], end, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&mutex);
    return *status;
}

} // namespace

Status device_failed(int device, const char *what, cudaError_t error)
{
    cudaGetLastError(); /* clears an error that is not sticky */
    const Status status =
        status_error(error == cudaErrorMemoryAllocation ? STATUS_OUT_OF_MEMORY : STATUS_DEVICE,
                     "%s failed on " GPU_KIND ":%d: %s (%s)", what, device,
                     cudaGetErrorString(error), cudaGetErrorName(error));
    return is_final(error) && device < most_devices ? remember_end(device, &status) : status;
}

Status device_checked(int device, const char *what, cudaError_t error)
{
    return error == cudaSuccess ? status_ok() : device_failed(device, what, error);
}

extern "C" Status launch_failed(const Launch *where, int error)
{
    return device_failed(where->device, "launching a kernel", static_cast<cudaError_t>(error));
}

Status device_works(int device)
{
    if (device >= most_devices) {
        return status_error(STATUS_UNSUPPORTED, "this package supports only the first %d GPUs",
                            most_devices);
    }
    const Status *const end = __atomic_load_n(&ends[device], __ATOMIC_ACQUIRE);
    return end ? *end : status_ok();
}
