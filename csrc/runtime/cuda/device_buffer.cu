/* Our own work and the work of other libraries use a buffer. We record an event after each use of
 * our own. From other libraries we only learn the stream that a DLPack consumer names. So before
 * our own work:
 * - For the default streams, we record an event in the legacy default stream. It follows the work
 *   in every stream that synchronizes with it, including the per-thread default streams.
 * - For any other stream we keep the ID, since handles are reused. In the same stream, stream order
 *   is enough; in another stream, the host waits for the device.
 * - A consumer of the CUDA array interface may use any stream while the array lives, and a graph
 *   replays in any stream. The host waits for the device.
 * The host never waits for a buffer that was not exported. */
#include "device_buffer.h"

#include <pthread.h>
#include <stdlib.h>

#include "../../base/cuda/allocator.h"
#include "../../base/cuda/failures.h"

namespace {

/* Limits for exported memory without owners. Above either, the host waits for the device. */
constexpr int64_t most_exported_bytes = 256 << 20;
constexpr int most_exported_buffers = 64;
/* Limit for dropped buffers that other streams still use. Beyond it, the current stream waits for
 * one and takes its memory. This bounds memory when the host runs far ahead of the GPU. */
constexpr int most_pending = 8;

pthread_mutex_t mutex =
    PTHREAD_MUTEX_INITIALIZER;            /* protects events and exports of buffers with owners */
DeviceBuffer *dropped[most_devices];      /* a lock-free stack per device */
pthread_mutex_t collecting[most_devices]; /* zero-initialised is valid */

/* Idle events of each device, and all counts of users. Locked after `mutex`. */
pthread_mutex_t event_mutex = PTHREAD_MUTEX_INITIALIZER;

} // namespace

/* An event that follows one call's work. The buffers that the call used share it. */
struct SharedEvent {
    cudaEvent_t event;
    int device;
    cudaStream_t stream;      /* that it was recorded in; a new stream may have the same handle */
    unsigned long long order; /* order_of(stream) */
    int users;
    SharedEvent *next; /* in the list of idle events */
};

namespace {

SharedEvent *idle_events[most_devices];

/* An event with one user, not yet recorded; NULL on failure. */
SharedEvent *take_event(int device)
{
    pthread_mutex_lock(&event_mutex);
    SharedEvent *taken = idle_events[device];
    if (taken) {
        idle_events[device] = taken->next;
    }
    pthread_mutex_unlock(&event_mutex);
    if (!taken) {
        taken = static_cast<SharedEvent *>(calloc(1, sizeof *taken));
        if (taken &&
            cudaEventCreateWithFlags(&taken->event, cudaEventDisableTiming) != cudaSuccess) {
            cudaGetLastError();
            free(taken);
            taken = nullptr;
        }
    }
    if (taken) {
        taken->device = device;
        taken->users = 1;
    }
    return taken;
}

void clear(SharedEvent **entry)
{
    SharedEvent *const event = *entry;
    *entry = nullptr;
    if (event) {
        pthread_mutex_lock(&event_mutex);
        if (--event->users == 0) {
            event->next = idle_events[event->device];
            idle_events[event->device] = event;
        }
        pthread_mutex_unlock(&event_mutex);
    }
}

void assign(SharedEvent **entry, SharedEvent *event)
{
    clear(entry);
    pthread_mutex_lock(&event_mutex);
    ++event->users;
    pthread_mutex_unlock(&event_mutex);
    *entry = event;
}

/* True if the event follows work of the stream with this order. */
bool is_in(const SharedEvent *event, unsigned long long order)
{
    return event->order == order && order != 0;
}

cudaError_t wait_for(cudaStream_t stream, unsigned long long order, const SharedEvent *event)
{
    return !event || is_in(event, order) ? cudaSuccess
                                         : cudaStreamWaitEvent(stream, event->event, 0);
}

/* Makes the stream wait for recorded events: before a read, for the last write; before a write, for
 * all events. */
cudaError_t wait_for_events(const DeviceBuffer *buffer, cudaStream_t stream,
                            unsigned long long order, bool writes)
{
    cudaError_t error = cudaSuccess;
    for (int index = 0; index < (writes ? MOST_EVENTS : 1) && error == cudaSuccess; ++index) {
        error = wait_for(stream, order, buffer->events[index]);
    }
    return error;
}

cudaError_t record_event(SharedEvent *event, cudaStream_t stream, unsigned long long order)
{
    event->stream = stream;
    event->order = order;
    return cudaEventRecord(event->event, stream);
}

/* Replaces the entry by an event after the work queued in the stream, and after the work that the
 * entry followed before. */
cudaError_t record(int device, SharedEvent **entry, cudaStream_t stream)
{
    const unsigned long long order = order_of(stream);
    SharedEvent *event = take_event(device);
    cudaError_t error = event ? wait_for(stream, order, *entry) : cudaErrorMemoryAllocation;
    error = error == cudaSuccess ? record_event(event, stream, order) : error;
    if (error == cudaSuccess) {
        assign(entry, event);
    }
    clear(&event);
    return error;
}

/* The entry for reads in a stream: its own, a free one, or one that it shares with another
 * stream. */
SharedEvent **read_entry(DeviceBuffer *buffer, cudaStream_t stream)
{
    SharedEvent **best = &buffer->events[1];
    for (int index = 1; index < MOST_EVENTS; ++index) {
        SharedEvent **const entry = &buffer->events[index];
        if (*entry && (*entry)->stream == stream) {
            return entry;
        }
        best = *best && !*entry ? entry : best;
    }
    return best;
}

bool is_done(const SharedEvent *event)
{
    const bool done = !event || cudaEventQuery(event->event) == cudaSuccess;
    cudaGetLastError();
    return done;
}

bool is_default(cudaStream_t stream)
{
    return stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/* The same as order_of, but 0 for the default streams. */
unsigned long long id_of(cudaStream_t stream)
{
    return is_default(stream) ? 0 : order_of(stream);
}

/* True if consumers may use the buffer in streams that this stream cannot wait for. */
bool needs_device_wait(const DeviceBuffer *buffer, cudaStream_t stream)
{
    return buffer->exported_anywhere ||
           (buffer->exported_to && buffer->exported_to != id_of(stream));
}

void push_dropped(DeviceBuffer *buffer)
{
    DeviceBuffer **const stack = &dropped[buffer->device];
    buffer->next = __atomic_load_n(stack, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(stack, &buffer->next, buffer, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}

/* Covers consumers' work in the default streams with an event, so that it counts as our own
 * work. */
bool record_exported_work(DeviceBuffer *buffer)
{
    const bool done =
        !buffer->exported_to_default || record(buffer->device, read_entry(buffer, cudaStreamLegacy),
                                               cudaStreamLegacy) == cudaSuccess;
    cudaGetLastError();
    buffer->exported_to_default = !done;
    return done;
}

/* True if only work in this stream still uses the buffer. */
bool is_used_only_in(const DeviceBuffer *buffer, cudaStream_t stream)
{
    bool all = true;
    for (const SharedEvent *const event : buffer->events) {
        all = all && (!event || event->stream == stream || is_done(event));
    }
    return all;
}

/* Frees a buffer. Unless all work is `done`, the stream first waits for the work that uses it. */
void release(DeviceBuffer *buffer, cudaStream_t stream, unsigned long long order, bool done)
{
    const bool ordered = !done && wait_for_events(buffer, stream, order, true) == cudaSuccess;
    if (!done && !ordered) {
        cudaGetLastError();
        push_dropped(buffer);
        return;
    }
    for (SharedEvent *&event : buffer->events) {
        clear(&event);
    }
    if (done) {
        allocator_free(buffer->device, buffer->matrix.data);
    } else {
        allocator_free_after(buffer->device, buffer->matrix.data, stream);
    }
    free(buffer);
}

} // namespace

void buffer_share(DeviceBuffer *buffer)
{
    __atomic_add_fetch(&buffer->owners, 1, __ATOMIC_RELAXED);
}

void buffer_drop(DeviceBuffer *buffer)
{
    if (__atomic_sub_fetch(&buffer->owners, 1, __ATOMIC_ACQ_REL) == 0) {
        push_dropped(buffer);
    }
}

cudaError_t stream_await(cudaStream_t stream, cudaStream_t other)
{
    cudaEvent_t event;
    if (stream == other) {
        return cudaSuccess;
    }
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) {
        error = cudaEventRecord(event, other);
        error = error == cudaSuccess ? cudaStreamWaitEvent(stream, event, 0) : error;
        cudaEventDestroy(event);
    }
    return error;
}

unsigned long long order_of(cudaStream_t stream)
{
    unsigned long long id = 0;
    if (stream == cudaStreamLegacy) {
        return UINT64_MAX; /* is never destroyed, and has no ID */
    }
    const bool known = stream != cudaStreamPerThread && cudaStreamGetId(stream, &id) == cudaSuccess;
    cudaGetLastError();
    return known ? id : 0;
}

Status buffer_await(DeviceBuffer *buffer, cudaStream_t stream, unsigned long long order,
                    bool writes)
{
    pthread_mutex_lock(&mutex);
    /* Read first: a consumer that drops the buffer has queued all its work before that. */
    const bool consumers_done = __atomic_load_n(&buffer->owners, __ATOMIC_ACQUIRE) == 1;
    const unsigned exports = buffer->exports;
    cudaError_t error = wait_for_events(buffer, stream, order, writes);
    if (error == cudaSuccess && buffer->exported_to_default) {
        error = stream_await(stream, cudaStreamLegacy);
    }
    const bool waits_for_device = needs_device_wait(buffer, stream);
    pthread_mutex_unlock(&mutex);
    if (error == cudaSuccess && waits_for_device) {
        error = device_wait();
    }
    if (error == cudaSuccess && consumers_done &&
        (buffer->exported_to_default || buffer->exported_to)) {
        pthread_mutex_lock(&mutex);
        /* The event makes other streams wait for the consumer's writes, too. */
        const bool recorded =
            waits_for_device || record(buffer->device, &buffer->events[0], stream) == cudaSuccess;
        if (recorded && buffer->exports == exports) {
            buffer->exported_to_default = false;
            buffer->exported_to = 0;
        }
        pthread_mutex_unlock(&mutex);
    }
    return device_checked(buffer->device, "waiting for an operand", error);
}

Status buffers_note(const StreamScope *scope)
{
    if (scope->uses == 0) {
        return status_ok();
    }
    const cudaStream_t stream = static_cast<cudaStream_t>(scope->stream);
    pthread_mutex_lock(&mutex);
    SharedEvent *event = take_event(scope->device);
    cudaError_t error = event ? cudaSuccess : cudaErrorMemoryAllocation;
    /* Another thread may have noted work since buffer_await. */
    for (int index = 0; index < scope->uses && error == cudaSuccess; ++index) {
        DeviceBuffer *const buffer = scope->used[index].buffer;
        error = scope->used[index].writes
                    ? wait_for_events(buffer, stream, scope->order, true)
                    : wait_for(stream, scope->order, *read_entry(buffer, stream));
    }
    error = error == cudaSuccess ? record_event(event, stream, scope->order) : error;
    for (int index = 0; index < scope->uses; ++index) {
        DeviceBuffer *const buffer = scope->used[index].buffer;
        if (error != cudaSuccess) {
            /* Without an event, only a wait for the device is safe. */
            buffer->exported_anywhere = true;
        } else if (scope->used[index].writes) {
            for (SharedEvent *&each : buffer->events) {
                clear(&each);
            }
            assign(&buffer->events[0], event);
        } else {
            assign(read_entry(buffer, stream), event);
        }
    }
    clear(&event);
    pthread_mutex_unlock(&mutex);
    return device_checked(scope->device, "recording an event after a product", error);
}

void buffer_note_captured(DeviceBuffer *buffer)
{
    pthread_mutex_lock(&mutex);
    buffer->exported_anywhere = true;
    pthread_mutex_unlock(&mutex);
}

Status buffer_export(DeviceBuffer *buffer, cudaStream_t stream)
{
    pthread_mutex_lock(&mutex);
    /* Wait for reads as well, since a consumer may write. */
    const cudaError_t error =
        stream ? wait_for_events(buffer, stream, order_of(stream), true) : cudaSuccess;
    ++buffer->exports;
    if (stream && is_default(stream)) {
        buffer->exported_to_default = true;
    } else {
        const unsigned long long id = stream ? id_of(stream) : 0;
        buffer->exported_anywhere |= !id || (buffer->exported_to && buffer->exported_to != id);
        buffer->exported_to = id;
    }
    pthread_mutex_unlock(&mutex);
    return device_checked(buffer->device, "making a stream wait for a result", error);
}

bool buffer_is_ready(DeviceBuffer *buffer)
{
    pthread_mutex_lock(&mutex);
    bool ready = true;
    for (const SharedEvent *const event : buffer->events) {
        ready = ready && is_done(event);
    }
    pthread_mutex_unlock(&mutex);
    return ready;
}

void buffers_collect(int device, cudaStream_t stream, bool all)
{
    /* A caller that needs memory waits for a collection in another thread; others skip theirs. */
    if (all) {
        pthread_mutex_lock(&collecting[device]);
    } else if (pthread_mutex_trylock(&collecting[device]) != 0) {
        return;
    }
    DeviceBuffer *buffer = __atomic_exchange_n(&dropped[device], nullptr, __ATOMIC_ACQ_REL);
    int64_t exported_bytes = 0;
    int exported_buffers = 0;
    for (const DeviceBuffer *each = buffer; each; each = each->next) {
        if (needs_device_wait(each, stream)) {
            exported_bytes += each->matrix.rows * each->matrix.cols * (int64_t)sizeof(float);
            ++exported_buffers;
        }
    }
    const bool done =
        (all || exported_bytes > most_exported_bytes || exported_buffers > most_exported_buffers) &&
        device_wait() == cudaSuccess;
    const unsigned long long order = buffer ? order_of(stream) : 0;
    int pending = 0;
    DeviceBuffer *kept = nullptr;
    while (buffer) { /* last dropped comes first */
        DeviceBuffer *const next = buffer->next;
        const bool known = !needs_device_wait(buffer, stream) && record_exported_work(buffer);
        if (done || (known && (is_used_only_in(buffer, stream) || ++pending > most_pending))) {
            release(buffer, stream, order, done);
        } else {
            buffer->next = kept;
            kept = buffer;
        }
        buffer = next;
    }
    while (kept) {
        DeviceBuffer *const next = kept->next;
        push_dropped(kept);
        kept = next;
    }
    pthread_mutex_unlock(&collecting[device]);
}
