#include "allocator.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "../core/scratch.h"

namespace {

constexpr int most_devices = 64;

struct Allocation {
    Allocation *next;
    void *memory;
    size_t bytes;
    bool idle;
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Allocation *blocks[most_devices]; /* all of a device's */
Status *ends[most_devices];       /* why a device is lost, or NULL; never freed */

/* What launches take and give back in a stream's order, so that what one gives back the next has
 * without a wait. Each device's is made when first asked for, and keeps what it once had. */
cudaMemPool_t pools[most_devices];

/* So that products of nearly the same size find each other's memory. */
size_t rounded(size_t bytes)
{
    const size_t step = bytes < (size_t{1} << 20) ? size_t{1} << 12 : size_t{1} << 21;
    return bytes > SIZE_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

/* The smallest idle block that is large enough and not wastefully so. */
Allocation *find_idle(int device, size_t bytes)
{
    Allocation *best = nullptr;
    for (Allocation *block = blocks[device]; block; block = block->next) {
        if (block->idle && block->bytes >= bytes && block->bytes / 2 <= bytes &&
            (!best || block->bytes < best->bytes)) {
            best = block;
        }
    }
    return best;
}

Status out_of_memory(int device, size_t bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    cudaGetLastError();
    const double side = floor(sqrt(static_cast<double>(free_bytes) / sizeof(float)));
    return status_error(STATUS_OUT_OF_MEMORY,
                        "cuda:%d is out of memory: %.3f GB were asked for, and %.3f of %.3f GB are "
                        "free, which a matrix of %.0f x %.0f fits into",
                        device, static_cast<double>(bytes) / 1e9,
                        static_cast<double>(free_bytes) / 1e9,
                        static_cast<double>(total_bytes) / 1e9, side, side);
}

cudaMemPool_t pool_of(int device)
{
    return __atomic_load_n(&pools[device], __ATOMIC_ACQUIRE);
}

cudaError_t make_pool(int device, cudaMemPool_t *pool)
{
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    const cudaError_t error = cudaMemPoolCreate(pool, &properties);
    if (error != cudaSuccess) {
        return error;
    }
    uint64_t keep = UINT64_MAX;
    cudaMemPoolSetAttribute(*pool, cudaMemPoolAttrReleaseThreshold, &keep);
    cudaMemPool_t first = nullptr;
    if (!__atomic_compare_exchange_n(&pools[device], &first, *pool, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        cudaMemPoolDestroy(*pool); /* another thread's was first */
        *pool = first;
    }
    return cudaSuccess;
}

/* After these the process can do nothing more on the device. */
bool is_final(cudaError_t error)
{
    switch (error) {
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
            *end =
                status_error(STATUS_DEVICE,
                             "cuda:%d is lost to this process, which must be started anew: %.400s",
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
    cudaGetLastError(); /* a failure that is not final ends here */
    const Status status =
        status_error(error == cudaErrorMemoryAllocation ? STATUS_OUT_OF_MEMORY : STATUS_DEVICE,
                     "%s failed on cuda:%d: %s (%s)", what, device, cudaGetErrorString(error),
                     cudaGetErrorName(error));
    return is_final(error) && device < most_devices ? remember_end(device, &status) : status;
}

Status device_checked(int device, const char *what, cudaError_t error)
{
    return error == cudaSuccess ? status_ok() : device_failed(device, what, error);
}

Status device_works(int device)
{
    if (device >= most_devices) {
        return status_error(STATUS_UNSUPPORTED, "this package serves the first %d GPUs",
                            most_devices);
    }
    const Status *const end = __atomic_load_n(&ends[device], __ATOMIC_ACQUIRE);
    return end ? *end : status_ok();
}

Status device_take(int device, size_t bytes, void **memory)
{
    *memory = nullptr;
    if (bytes == 0) {
        return status_ok();
    }
    const size_t wanted = rounded(bytes);
    pthread_mutex_lock(&mutex);
    Allocation *block = find_idle(device, wanted);
    if (block) {
        block->idle = false;
        *memory = block->memory;
    }
    pthread_mutex_unlock(&mutex);
    if (block) {
        return status_ok();
    }
    block = static_cast<Allocation *>(malloc(sizeof *block));
    if (!block) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory on the host to note memory on a GPU");
    }
    cudaError_t error = cudaMalloc(memory, wanted);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        device_trim(device);
        error = cudaMalloc(memory, wanted);
    }
    if (error != cudaSuccess) {
        free(block);
        *memory = nullptr;
        if (error == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            return out_of_memory(device, bytes);
        }
        return device_failed(device, "allocating memory", error);
    }
    pthread_mutex_lock(&mutex);
    *block = {blocks[device], *memory, wanted, false};
    blocks[device] = block;
    pthread_mutex_unlock(&mutex);
    return status_ok();
}

void device_give(int device, void *memory)
{
    pthread_mutex_lock(&mutex);
    for (Allocation *block = blocks[device]; memory && block; block = block->next) {
        if (block->memory == memory) {
            block->idle = true;
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
}

void device_trim(int device)
{
    Allocation *gone = nullptr;
    pthread_mutex_lock(&mutex);
    for (Allocation **place = &blocks[device]; *place;) {
        Allocation *const block = *place;
        if (block->idle) {
            *place = block->next;
            block->next = gone;
            gone = block;
        } else {
            place = &block->next;
        }
    }
    pthread_mutex_unlock(&mutex);
    while (gone) {
        Allocation *const next = gone->next;
        cudaFree(gone->memory); /* what fails here fails the next call, too */
        free(gone);
        gone = next;
    }
    if (const cudaMemPool_t pool = pool_of(device)) {
        cudaMemPoolTrimTo(pool, 0);
    }
    cudaGetLastError();
}

bool device_is_used(int device)
{
    pthread_mutex_lock(&mutex);
    const bool used = device < most_devices && (blocks[device] || pool_of(device));
    pthread_mutex_unlock(&mutex);
    return used;
}

Status device_available(int device, size_t *bytes)
{
    size_t total_bytes = 0;
    device_trim(device);
    return device_checked(device, "asking for free memory", cudaMemGetInfo(bytes, &total_bytes));
}

extern "C" Status scratch_take(size_t bytes, const Launch *where, void **memory)
{
    const int device = where->device;
    const cudaStream_t stream = static_cast<cudaStream_t>(where->stream);
    cudaMemPool_t pool = pool_of(device);
    *memory = nullptr;
    cudaError_t error = pool ? cudaSuccess : make_pool(device, &pool);
    if (error == cudaSuccess) {
        error = cudaMallocFromPoolAsync(memory, bytes, pool, stream);
    }
    if (pool && error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        device_trim(device);
        error = cudaMallocFromPoolAsync(memory, bytes, pool, stream);
    }
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return out_of_memory(device, bytes);
    }
    return device_checked(device, "allocating memory for a launch", error);
}

extern "C" void scratch_give(void *memory, const Launch *where)
{
    cudaFreeAsync(memory, static_cast<cudaStream_t>(where->stream));
}
