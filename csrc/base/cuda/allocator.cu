/* The allocator caches memory from cudaMalloc; reuse takes less than a microsecond. cudaMallocAsync
 * does not suit operands, which three streams use at a time, and some GPUs lack it. A second
 * allocator for scratch memory would hold memory that the first one needs.
 *
 * A stream runs its work in order, so a launch may reuse memory that an earlier launch in the same
 * stream returned: no wait, no event. When the package leaves a caller's stream, it records one
 * event per allocation, and other streams may use the memory after that event.
 *
 * A graph replays its work at any time on the same addresses. During a capture, a launch therefore
 * allocates with cudaMallocAsync, and the memory belongs to the graph.
 *
 * Counters are separate allocations. They are zeroed once, and each launch leaves them zero. */
#include "allocator.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "../scratch.h"
#include "failures.h"

namespace {

struct Allocation {
    Allocation *next;
    void *memory;
    size_t bytes;
    bool zeros; /* counters */
    bool idle;
    const void *stream_key; /* if idle: the stream whose work may still use it; NULL: none */
    bool has_event;         /* other streams may use the memory after the event */
    cudaEvent_t event;      /* created on first use */
    uint64_t freed_at;      /* sequence number */
};

/* Maximum number of suitable allocations that wait for other streams. Beyond it, a stream waits for
 * the one returned first. This bounds memory when the host runs far ahead of the GPU. */
constexpr int most_pending = 8;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t
    trimming[most_devices]; /* one per device, locked before `mutex`; zero-initialised is valid */
Allocation *allocations[most_devices]; /* all allocations of a device */
uint64_t frees;

/* Identifies a stream. All threads share one handle for their per-thread default streams, so the
 * address of a thread-local variable replaces it. */
const void *key_of(cudaStream_t stream)
{
    static thread_local char own;
    return stream == cudaStreamPerThread ? static_cast<const void *>(&own) : stream;
}

/* Rounds up, so that products of similar sizes can reuse each other's memory. */
size_t rounded(size_t bytes)
{
    const size_t step = bytes < (size_t{1} << 20) ? size_t{1} << 12 : size_t{1} << 21;
    return bytes > SIZE_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

/* True if work queued in this stream from now on may use an idle allocation. Caller holds
 * `mutex`. */
bool is_free(Allocation *allocation, const void *key)
{
    if (allocation->stream_key && allocation->stream_key != key && allocation->has_event &&
        cudaEventQuery(allocation->event) == cudaSuccess) {
        allocation->stream_key = nullptr;
        allocation->has_event = false;
    }
    cudaGetLastError();
    return !allocation->stream_key || allocation->stream_key == key;
}

/* Idle, large enough, and at most twice as large as needed. */
bool suits(const Allocation *allocation, size_t bytes, bool zeros)
{
    return allocation->idle && allocation->zeros == zeros && allocation->bytes >= bytes &&
           allocation->bytes / 2 <= bytes;
}

/* The smallest suitable free allocation. Caller holds `mutex`. */
Allocation *find_free(int device, size_t bytes, bool zeros, const void *key)
{
    Allocation *best = nullptr;
    for (Allocation *each = allocations[device]; each; each = each->next) {
        if (suits(each, bytes, zeros) && (!best || each->bytes < best->bytes) &&
            is_free(each, key)) {
            best = each;
        }
    }
    return best;
}

/* If most_pending suitable allocations wait for other streams, the one returned first; otherwise
 * NULL. Caller holds `mutex`. */
Allocation *find_pending(int device, size_t bytes, bool zeros)
{
    Allocation *first = nullptr;
    int pending = 0;
    for (Allocation *each = allocations[device]; each; each = each->next) {
        if (suits(each, bytes, zeros) && each->has_event) {
            ++pending;
            first = !first || each->freed_at < first->freed_at ? each : first;
        }
    }
    return pending >= most_pending ? first : nullptr;
}

Allocation *find(int device, const void *memory)
{
    Allocation *each = allocations[device];
    while (each && each->memory != memory) {
        each = each->next;
    }
    return each;
}

Status out_of_memory(int device, size_t bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    cudaGetLastError();
    double held_bytes = 0;
    pthread_mutex_lock(&mutex);
    for (const Allocation *each = allocations[device]; each; each = each->next) {
        held_bytes += each->idle ? 0 : static_cast<double>(each->bytes);
    }
    pthread_mutex_unlock(&mutex);
    const double side = floor(sqrt(static_cast<double>(free_bytes) / sizeof(float)));
    return status_error(
        STATUS_OUT_OF_MEMORY,
        GPU_KIND ":%d is out of memory: %.3f GB requested, %.3f of %.3f GB free (enough for "
                 "a %.0f x %.0f float32 matrix); this package's results and running calls "
                 "hold %.3f GB; torch.cuda.empty_cache() and "
                 "cupy.get_default_memory_pool().free_all_blocks() free the memory that "
                 "PyTorch and CuPy cache",
        device, static_cast<double>(bytes) / 1e9, static_cast<double>(free_bytes) / 1e9,
        static_cast<double>(total_bytes) / 1e9, side, side, held_bytes / 1e9);
}

/* Takes a cached allocation; *memory stays NULL if none suits. */
Status take_idle(int device, size_t bytes, bool zeros, cudaStream_t stream, void **memory)
{
    Status status = status_ok();
    const void *const key = stream ? key_of(stream) : nullptr;
    pthread_mutex_lock(&mutex);
    Allocation *found = find_free(device, bytes, zeros, key);
    found = found || !stream ? found : find_pending(device, bytes, zeros);
    if (found && found->stream_key && found->has_event) {
        /* Wait even if the handles are equal: a new stream may have a destroyed stream's handle. */
        status = device_checked(device, "waiting for memory",
                                cudaStreamWaitEvent(stream, found->event, 0));
    }
    if (found && status.code == STATUS_OK) {
        found->idle = false;
        found->stream_key = nullptr;
        found->has_event = false;
        *memory = found->memory;
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

/* Records the event after which other streams may use the memory. Caller holds `mutex`. */
void record_event(Allocation *allocation, cudaStream_t stream)
{
    cudaError_t error = allocation->event
                            ? cudaSuccess
                            : cudaEventCreateWithFlags(&allocation->event, cudaEventDisableTiming);
    error = error == cudaSuccess ? cudaEventRecord(allocation->event, stream) : error;
    allocation->has_event = error == cudaSuccess;
    /* Without an event, no stream may match: only allocator_trim can free the memory. */
    allocation->stream_key = allocation->has_event ? allocation->stream_key : allocation;
    cudaGetLastError();
}

/* See allocator_free_after. False if the memory is not from this allocator. */
bool give_after(int device, void *memory, cudaStream_t stream)
{
    pthread_mutex_lock(&mutex);
    Allocation *const found = memory ? find(device, memory) : nullptr;
    if (found) {
        found->idle = true;
        found->stream_key = key_of(stream);
        found->has_event = false;
        found->freed_at = ++frees;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

/* Adds an allocation node to the graph being captured; scratch_free adds the free node. */
Status take_in_graph(int device, size_t bytes, bool zeros, cudaStream_t stream, void **memory)
{
    int pools = 0;
    cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device);
    cudaGetLastError();
    if (!pools) {
        return status_error(STATUS_INVALID,
                            "the variant allocates memory for this product, which a " GPU_API
                            " graph can do only on a GPU with memory pools, and " GPU_KIND
                            ":%d has none: capture 'vec4' or 'warptile' with contiguous row-major "
                            "arrays",
                            device);
    }
    if (bytes == 0) {
        return status_ok();
    }
    cudaError_t error = cudaMallocAsync(memory, bytes, stream);
    if (error == cudaSuccess && zeros) { /* on each replay */
        error = cudaMemsetAsync(*memory, 0, bytes, stream);
        if (error != cudaSuccess) {
            cudaFreeAsync(*memory, stream);
            *memory = nullptr;
        }
    }
    return device_checked(device, "adding an allocation to a " GPU_API " graph", error);
}

/* See allocator_alloc. `zeros`: for counters. */
Status take(int device, size_t bytes, bool zeros, cudaStream_t stream, void **memory)
{
    *memory = nullptr;
    if (bytes == 0) {
        return status_ok();
    }
    const size_t wanted = rounded(bytes);
    const Status status = take_idle(device, wanted, zeros, stream, memory);
    if (status.code != STATUS_OK || *memory) {
        return status;
    }
    Allocation *const made = static_cast<Allocation *>(calloc(1, sizeof *made));
    if (!made) {
        return status_error(STATUS_OUT_OF_MEMORY,
                            "no host memory for the record of a GPU allocation");
    }
    cudaError_t error = cudaMalloc(memory, wanted);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        allocator_trim(device);
        error = cudaMalloc(memory, wanted);
    }
    if (error == cudaSuccess && zeros) {
        error = cudaMemsetAsync(*memory, 0, wanted, stream);
        if (error != cudaSuccess) {
            cudaFree(*memory);
        }
    }
    if (error != cudaSuccess) {
        free(made);
        *memory = nullptr;
        if (error == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            return out_of_memory(device, bytes);
        }
        return device_failed(device, "allocating memory", error);
    }
    made->memory = *memory;
    made->bytes = wanted;
    made->zeros = zeros;
    pthread_mutex_lock(&mutex);
    made->next = allocations[device];
    allocations[device] = made;
    pthread_mutex_unlock(&mutex);
    return status_ok();
}

/* Memory for a launch; it belongs to the graph if the stream is being captured. */
Status take_for(const Launch *where, size_t bytes, bool zeros, void **memory)
{
    const cudaStream_t stream = static_cast<cudaStream_t>(where->stream);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    *memory = nullptr;
    const Status status = device_checked(where->device, "querying the capture status of the stream",
                                         cudaStreamIsCapturing(stream, &capture));
    if (status.code != STATUS_OK) {
        return status;
    }
    return capture == cudaStreamCaptureStatusNone
               ? take(where->device, bytes, zeros, stream, memory)
               : take_in_graph(where->device, bytes, zeros, stream, memory);
}

} // namespace

Status allocator_alloc(int device, size_t bytes, cudaStream_t stream, void **memory)
{
    return take(device, bytes, false, stream, memory);
}

void allocator_free(int device, void *memory)
{
    pthread_mutex_lock(&mutex);
    if (Allocation *const found = memory ? find(device, memory) : nullptr) {
        found->idle = true;
        found->stream_key = nullptr;
        found->has_event = false;
    }
    pthread_mutex_unlock(&mutex);
}

void allocator_free_after(int device, void *memory, cudaStream_t stream)
{
    give_after(device, memory, stream);
}

void allocator_settle(int device, cudaStream_t stream, bool done)
{
    const void *const key = key_of(stream);
    pthread_mutex_lock(&mutex);
    for (Allocation *each = allocations[device]; each; each = each->next) {
        if (each->idle && each->stream_key == key && !each->has_event) {
            if (done) {
                each->stream_key = nullptr;
            } else {
                record_event(each, stream);
            }
        }
    }
    pthread_mutex_unlock(&mutex);
}

void allocator_trim(int device)
{
    Allocation *gone = nullptr;
    /* Held until the memory is freed, so that a concurrent trim returns only after that. */
    pthread_mutex_lock(&trimming[device]);
    pthread_mutex_lock(&mutex);
    for (Allocation **place = &allocations[device]; *place;) {
        Allocation *const each = *place;
        if (each->idle) {
            *place = each->next;
            each->next = gone;
            gone = each;
        } else {
            place = &each->next;
        }
    }
    pthread_mutex_unlock(&mutex);
    while (gone) {
        Allocation *const each = gone;
        gone = each->next;
        cudaFree(each->memory); /* waits for the device; the next call reports an error */
        if (each->event) {
            cudaEventDestroy(each->event);
        }
        free(each);
    }
    cudaGetLastError();
    pthread_mutex_unlock(&trimming[device]);
}

cudaError_t device_wait(void)
{
    /* cudaFree waits for all streams of a device. So does cudaDeviceSynchronize, but it invalidates
     * every capture on the device, even in relaxed mode. */
    void *memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, 1);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return cudaDeviceSynchronize();
    }
    return error == cudaSuccess ? cudaFree(memory) : error;
}

bool allocator_is_used(int device)
{
    pthread_mutex_lock(&mutex);
    const bool used = device < most_devices && allocations[device];
    pthread_mutex_unlock(&mutex);
    return used;
}

Status allocator_available(int device, size_t *bytes)
{
    size_t total_bytes = 0;
    allocator_trim(device);
    return device_checked(device, "querying free memory", cudaMemGetInfo(bytes, &total_bytes));
}

extern "C" Status scratch_alloc(size_t bytes, const Launch *where, void **memory)
{
    return take_for(where, bytes, false, memory);
}

extern "C" Status counters_alloc(size_t count, const Launch *where, unsigned **counters)
{
    void *memory;
    const Status status = take_for(where, count * sizeof **counters, true, &memory);
    *counters = static_cast<unsigned *>(memory);
    return status;
}

extern "C" void scratch_free(void *memory, const Launch *where)
{
    const cudaStream_t stream = static_cast<cudaStream_t>(where->stream);
    if (memory && !give_after(where->device, memory, stream)) { /* memory of a graph */
        cudaFreeAsync(memory, stream);
        cudaGetLastError();
    }
}
