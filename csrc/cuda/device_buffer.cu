/* Two kinds of work use a buffer. Ours is known: each use leaves an event in its stream. That of
 * libraries which the memory was lent to is not, but for the stream that DLPack's consumer names,
 * whose order it keeps to. So before our own work
 * - an event in the legacy default stream stands for all the default streams: it comes after what is
 *   queued there and in every stream that blocks with it, those per thread among them;
 * - of another stream the number is kept, not the handle, which may be gone or be that of a later one:
 *   where ours is the same stream its order suffices, elsewhere the host waits for the device;
 * - a consumer of the CUDA array interface may work in any stream, at any time as long as the array
 *   lives, and a graph is replayed in any: there the host waits for the device as well.
 * What was never lent is never waited for by the host. */
#include "device_buffer.h"

#include <pthread.h>
#include <stdlib.h>

#include "allocator.h"
#include "failures.h"

namespace {

/* How much memory that was lent may wait to be given back, which takes a wait for the device. */
constexpr int64_t most_exported_bytes = 256 << 20;
constexpr int most_exported_buffers = 64;
/* And how many that other streams use may wait until they are done; beyond that a stream takes one over
 * and waits for it, so that a host that is far ahead of the GPU needs no more. */
constexpr int most_pending = 8;

pthread_mutex_t mutex =
    PTHREAD_MUTEX_INITIALIZER;            /* for events and exports of buffers with owners */
DeviceBuffer *dropped[most_devices];      /* a stack of each device, without a lock */
pthread_mutex_t collecting[most_devices]; /* zeros are PTHREAD_MUTEX_INITIALIZER */

cudaEvent_t handle_of(const StreamEvent &entry)
{
    return static_cast<cudaEvent_t>(entry.event);
}

cudaError_t wait_for(cudaStream_t stream, const StreamEvent &entry)
{
    return entry.event ? cudaStreamWaitEvent(stream, handle_of(entry), 0) : cudaSuccess;
}

/* The stream waits until work in it may read the buffer, or write it, for all that is known. */
cudaError_t wait_for_events(const DeviceBuffer *buffer, cudaStream_t stream, bool writes)
{
    cudaError_t error = cudaSuccess;
    for (int index = 0; index < (writes ? MOST_EVENTS : 1) && error == cudaSuccess; ++index) {
        error = wait_for(stream, buffer->events[index]);
    }
    return error;
}

void clear(StreamEvent *entry)
{
    if (entry->event) {
        cudaEventDestroy(handle_of(*entry));
    }
    *entry = {};
}

/* Moves an entry to where the stream is now, after what it marked before. */
cudaError_t record(StreamEvent *entry, cudaStream_t stream)
{
    cudaEvent_t event = handle_of(*entry);
    cudaError_t error =
        event ? wait_for(stream, *entry) : cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) {
        *entry = {stream, event};
        error = cudaEventRecord(event, stream);
    }
    return error;
}

/* The entry for reads in a stream: its own, a free one, or else one that it then stands for as well. */
StreamEvent *read_entry(DeviceBuffer *buffer, cudaStream_t stream)
{
    StreamEvent *best = &buffer->events[1];
    for (int index = 1; index < MOST_EVENTS; ++index) {
        StreamEvent *const entry = &buffer->events[index];
        if (entry->event && entry->stream == stream) {
            return entry;
        }
        best = best->event && !entry->event ? entry : best;
    }
    return best;
}

bool is_done(const StreamEvent &entry)
{
    const bool done = !entry.event || cudaEventQuery(handle_of(entry)) == cudaSuccess;
    cudaGetLastError();
    return done;
}

bool is_default(cudaStream_t stream)
{
    return stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/* A stream's number, which no other has as long as the process lives; 0 if it is not to be had. */
unsigned long long id_of(cudaStream_t stream)
{
    unsigned long long id = 0;
    const bool known = !is_default(stream) && cudaStreamGetId(stream, &id) == cudaSuccess;
    cudaGetLastError();
    return known ? id : 0;
}

/* Whether a borrower's work is beyond what an order of streams can tell. */
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

/* The work of those that a dropped buffer was lent to, in the default streams, becomes like ours. */
bool record_exported_work(DeviceBuffer *buffer)
{
    const bool done = !buffer->exported_to_default ||
                      record(read_entry(buffer, cudaStreamLegacy), cudaStreamLegacy) == cudaSuccess;
    cudaGetLastError();
    buffer->exported_to_default = !done;
    return done;
}

/* Whether only work in the stream still uses a buffer. */
bool is_used_only_in(const DeviceBuffer *buffer, cudaStream_t stream)
{
    bool all = true;
    for (const StreamEvent &entry : buffer->events) {
        all = all && (entry.stream == stream || is_done(entry));
    }
    return all;
}

/* Ends a buffer: the stream waits for the work that still uses it, of which with `done` there is none. */
void release(DeviceBuffer *buffer, cudaStream_t stream, bool done)
{
    bool ordered = !done;
    for (const StreamEvent &entry : buffer->events) {
        /* For the case that the stream is a later one, to which the handle has passed. */
        if (ordered && !is_done(entry)) {
            ordered = wait_for(stream, entry) == cudaSuccess;
        }
    }
    if (!done && !ordered) {
        cudaGetLastError();
        push_dropped(buffer);
        return;
    }
    for (StreamEvent &entry : buffer->events) {
        clear(&entry);
    }
    if (done) {
        allocator_give(buffer->device, buffer->matrix.data);
    } else {
        allocator_give_after(buffer->device, buffer->matrix.data, stream);
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

Status buffer_await(DeviceBuffer *buffer, cudaStream_t stream, bool writes)
{
    pthread_mutex_lock(&mutex);
    /* Asked first: a borrower that lets go of it meanwhile has queued all its work by then. */
    const bool consumers_done = __atomic_load_n(&buffer->owners, __ATOMIC_ACQUIRE) == 1;
    const unsigned exports = buffer->exports;
    cudaError_t error = wait_for_events(buffer, stream, writes);
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
        /* What the borrower has written is for other streams, too, which have not waited for it. */
        const bool recorded = waits_for_device || record(&buffer->events[0], stream) == cudaSuccess;
        if (recorded && buffer->exports == exports) {
            buffer->exported_to_default = false;
            buffer->exported_to = 0;
        }
        pthread_mutex_unlock(&mutex);
    }
    return device_checked(buffer->device, "waiting for an operand", error);
}

Status buffer_note(DeviceBuffer *buffer, cudaStream_t stream, bool writes)
{
    pthread_mutex_lock(&mutex);
    const cudaError_t error =
        record(writes ? &buffer->events[0] : read_entry(buffer, stream), stream);
    for (int index = 1; writes && error == cudaSuccess && index < MOST_EVENTS; ++index) {
        clear(&buffer->events[index]);
    }
    buffer->exported_anywhere |= error != cudaSuccess; /* nothing else tells when it is unused */
    pthread_mutex_unlock(&mutex);
    return device_checked(buffer->device, "marking the end of a product", error);
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
    /* In our own stream too: its handle may by now be that of a later stream. And after what reads it,
     * since a borrower may write. */
    const cudaError_t error = stream ? wait_for_events(buffer, stream, true) : cudaSuccess;
    ++buffer->exports;
    if (stream && is_default(stream)) {
        buffer->exported_to_default = true;
    } else {
        const unsigned long long id = stream ? id_of(stream) : 0;
        buffer->exported_anywhere |= !id || (buffer->exported_to && buffer->exported_to != id);
        buffer->exported_to = id;
    }
    pthread_mutex_unlock(&mutex);
    return device_checked(buffer->device, "ordering a stream after a result", error);
}

bool buffer_is_ready(DeviceBuffer *buffer)
{
    pthread_mutex_lock(&mutex);
    bool ready = true;
    for (const StreamEvent &entry : buffer->events) {
        ready = ready && is_done(entry);
    }
    pthread_mutex_unlock(&mutex);
    return ready;
}

void buffers_collect(int device, cudaStream_t stream, bool all)
{
    /* Who needs memory waits for what another thread is about to give back. */
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
    int pending = 0;
    DeviceBuffer *kept = nullptr;
    while (buffer) { /* those first that were dropped last */
        DeviceBuffer *const next = buffer->next;
        const bool known = !needs_device_wait(buffer, stream) && record_exported_work(buffer);
        if (done || (known && (is_used_only_in(buffer, stream) || ++pending > most_pending))) {
            release(buffer, stream, done);
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
