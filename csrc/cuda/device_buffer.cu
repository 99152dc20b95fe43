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
constexpr int64_t most_lent_bytes = 256 << 20;
constexpr int most_lent_buffers = 64;
/* And how many that other streams use may wait until they are done; beyond that a stream takes one over
 * and waits for it, so that a host that is far ahead of the GPU needs no more. */
constexpr int most_pending = 8;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for marks and loans of buffers with owners */
DeviceBuffer *dropped[most_devices];               /* a stack of each device, without a lock */
pthread_mutex_t collecting[most_devices];          /* zeros are PTHREAD_MUTEX_INITIALIZER */

cudaEvent_t event_of(const Mark &mark)
{
    return static_cast<cudaEvent_t>(mark.event);
}

cudaError_t wait_for(cudaStream_t stream, const Mark &mark)
{
    return mark.event ? cudaStreamWaitEvent(stream, event_of(mark), 0) : cudaSuccess;
}

/* The stream waits until work in it may read the buffer, or write it, for all that is known. */
cudaError_t wait_for_marks(const DeviceBuffer *buffer, cudaStream_t stream, bool writes)
{
    cudaError_t error = cudaSuccess;
    for (int index = 0; index < (writes ? MOST_MARKS : 1) && error == cudaSuccess; ++index) {
        error = wait_for(stream, buffer->marks[index]);
    }
    return error;
}

void forget(Mark *mark)
{
    if (mark->event) {
        cudaEventDestroy(event_of(*mark));
    }
    *mark = {};
}

/* Moves a mark to where the stream is now, after what it marked before. */
cudaError_t set(Mark *mark, cudaStream_t stream)
{
    cudaEvent_t event = event_of(*mark);
    cudaError_t error =
        event ? wait_for(stream, *mark) : cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) {
        *mark = {stream, event};
        error = cudaEventRecord(event, stream);
    }
    return error;
}

/* The mark for reads in a stream: its own, a free one, or else one that it then stands for as well. */
Mark *reader(DeviceBuffer *buffer, cudaStream_t stream)
{
    Mark *best = &buffer->marks[1];
    for (int index = 1; index < MOST_MARKS; ++index) {
        Mark *const mark = &buffer->marks[index];
        if (mark->event && mark->stream == stream) {
            return mark;
        }
        best = best->event && !mark->event ? mark : best;
    }
    return best;
}

bool is_done(const Mark &mark)
{
    const bool done = !mark.event || cudaEventQuery(event_of(mark)) == cudaSuccess;
    cudaGetLastError();
    return done;
}

bool is_default(cudaStream_t stream)
{
    return stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/* A stream's number, which no other has as long as the process lives; 0 if it is not to be had. */
unsigned long long number_of(cudaStream_t stream)
{
    unsigned long long number = 0;
    const bool known = !is_default(stream) && cudaStreamGetId(stream, &number) == cudaSuccess;
    cudaGetLastError();
    return known ? number : 0;
}

/* Whether a borrower's work is beyond what an order of streams can tell. */
bool is_lent_beyond(const DeviceBuffer *buffer, cudaStream_t stream)
{
    return buffer->lent_anywhere || (buffer->lent_to && buffer->lent_to != number_of(stream));
}

void put_back(DeviceBuffer *buffer)
{
    DeviceBuffer **const stack = &dropped[buffer->device];
    buffer->next = __atomic_load_n(stack, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(stack, &buffer->next, buffer, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}

/* The work of those that a dropped buffer was lent to, in the default streams, becomes like ours. */
bool turn_loan_into_mark(DeviceBuffer *buffer)
{
    const bool done = !buffer->lent_to_default ||
                      set(reader(buffer, cudaStreamLegacy), cudaStreamLegacy) == cudaSuccess;
    cudaGetLastError();
    buffer->lent_to_default = !done;
    return done;
}

/* Whether only work in the stream still uses a buffer. */
bool follows(const DeviceBuffer *buffer, cudaStream_t stream)
{
    bool all = true;
    for (const Mark &mark : buffer->marks) {
        all = all && (mark.stream == stream || is_done(mark));
    }
    return all;
}

/* Ends a buffer: the stream waits for the work that still uses it, of which with `done` there is none. */
void end(DeviceBuffer *buffer, cudaStream_t stream, bool done)
{
    bool ordered = !done;
    for (const Mark &mark : buffer->marks) {
        /* For the case that the stream is a later one, to which the handle has passed. */
        if (ordered && !is_done(mark)) {
            ordered = wait_for(stream, mark) == cudaSuccess;
        }
    }
    if (!done && !ordered) {
        cudaGetLastError();
        put_back(buffer);
        return;
    }
    for (Mark &mark : buffer->marks) {
        forget(&mark);
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
        put_back(buffer);
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
    const bool returned = __atomic_load_n(&buffer->owners, __ATOMIC_ACQUIRE) == 1;
    const unsigned loans = buffer->loans;
    cudaError_t error = wait_for_marks(buffer, stream, writes);
    if (error == cudaSuccess && buffer->lent_to_default) {
        error = stream_await(stream, cudaStreamLegacy);
    }
    const bool beyond = is_lent_beyond(buffer, stream);
    pthread_mutex_unlock(&mutex);
    if (error == cudaSuccess && beyond) {
        error = device_wait();
    }
    if (error == cudaSuccess && returned && (buffer->lent_to_default || buffer->lent_to)) {
        pthread_mutex_lock(&mutex);
        /* What the borrower has written is for other streams, too, which have not waited for it. */
        const bool told = beyond || set(&buffer->marks[0], stream) == cudaSuccess;
        if (told && buffer->loans == loans) {
            buffer->lent_to_default = false;
            buffer->lent_to = 0;
        }
        pthread_mutex_unlock(&mutex);
    }
    return device_checked(buffer->device, "waiting for an operand", error);
}

Status buffer_note(DeviceBuffer *buffer, cudaStream_t stream, bool writes)
{
    pthread_mutex_lock(&mutex);
    const cudaError_t error = set(writes ? &buffer->marks[0] : reader(buffer, stream), stream);
    for (int index = 1; writes && error == cudaSuccess && index < MOST_MARKS; ++index) {
        forget(&buffer->marks[index]);
    }
    buffer->lent_anywhere |= error != cudaSuccess; /* nothing else tells when it is unused */
    pthread_mutex_unlock(&mutex);
    return device_checked(buffer->device, "marking the end of a product", error);
}

void buffer_note_captured(DeviceBuffer *buffer)
{
    pthread_mutex_lock(&mutex);
    buffer->lent_anywhere = true;
    pthread_mutex_unlock(&mutex);
}

Status buffer_lend(DeviceBuffer *buffer, cudaStream_t stream)
{
    pthread_mutex_lock(&mutex);
    /* In our own stream too: its handle may by now be that of a later stream. And after what reads it,
     * since a borrower may write. */
    const cudaError_t error = stream ? wait_for_marks(buffer, stream, true) : cudaSuccess;
    ++buffer->loans;
    if (stream && is_default(stream)) {
        buffer->lent_to_default = true;
    } else {
        const unsigned long long number = stream ? number_of(stream) : 0;
        buffer->lent_anywhere |= !number || (buffer->lent_to && buffer->lent_to != number);
        buffer->lent_to = number;
    }
    pthread_mutex_unlock(&mutex);
    return device_checked(buffer->device, "ordering a stream after a result", error);
}

bool buffer_is_ready(DeviceBuffer *buffer)
{
    pthread_mutex_lock(&mutex);
    bool ready = true;
    for (const Mark &mark : buffer->marks) {
        ready = ready && is_done(mark);
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
    int64_t lent_bytes = 0;
    int lent_buffers = 0;
    for (const DeviceBuffer *each = buffer; each; each = each->next) {
        if (is_lent_beyond(each, stream)) {
            lent_bytes += each->matrix.rows * each->matrix.cols * (int64_t)sizeof(float);
            ++lent_buffers;
        }
    }
    const bool done = (all || lent_bytes > most_lent_bytes || lent_buffers > most_lent_buffers) &&
                      device_wait() == cudaSuccess;
    int pending = 0;
    DeviceBuffer *kept = nullptr;
    while (buffer) { /* those first that were dropped last */
        DeviceBuffer *const next = buffer->next;
        const bool known = !is_lent_beyond(buffer, stream) && turn_loan_into_mark(buffer);
        if (done || (known && (follows(buffer, stream) || ++pending > most_pending))) {
            end(buffer, stream, done);
        } else {
            buffer->next = kept;
            kept = buffer;
        }
        buffer = next;
    }
    while (kept) {
        DeviceBuffer *const next = kept->next;
        put_back(kept);
        kept = next;
    }
    pthread_mutex_unlock(&collecting[device]);
}
