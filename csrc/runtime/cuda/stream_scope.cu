#include "stream_scope.h"

#include "../../base/cuda/allocator.h"
#include "contiguous.h"
#include "device_buffer.h"
#include "memory_lock.h"
#include "session.h"
#include "streams.h"
#include "strided_copy.h"

Status scope_enter(int index, void *stream, StreamScope *scope)
{
    *scope = {};
    scope->device = index;
    scope->used = scope->of_one;
    Status status = session_open(index);
    if (status.code != STATUS_OK) {
        return status;
    }
    if (stream) {
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        scope->stream = stream;
        status = scope_checked(scope, "querying the capture status of the stream",
                               cudaStreamIsCapturing(stream_of(scope), &capture));
        scope->captured = capture != cudaStreamCaptureStatusNone;
    } else {
        status = streams_alloc(index, &scope->streams);
        scope->stream = scope->streams ? scope->streams->run : nullptr;
    }
    if (status.code != STATUS_OK) {
        session_close();
        return status;
    }
    if (!scope->captured) {
        buffers_collect(index, stream_of(scope), false);
    }
    return status;
}

/* True if the scope's stream is being captured. A stream of the package becomes part of a capture
 * when it waits for a captured stream; the call is then refused. */
static bool is_captured(const StreamScope *scope)
{
    if (!scope->streams || scope->finished) {
        return scope->captured;
    }
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream_of(scope), &capture);
    cudaGetLastError();
    return capture != cudaStreamCaptureStatusNone;
}

void scope_leave(StreamScope *scope)
{
    const int device = scope->device;
    const bool captured = is_captured(scope);
    if (!captured) {
        /* Done only if finished: after an early failure, work of collected buffers may be
         * pending. */
        allocator_settle(device, stream_of(scope), scope->streams && scope->finished);
    }
    if (scope->streams) {
        (captured ? streams_free_captured : streams_free)(device, scope->streams);
    }
    session_close();
}

Status scope_refuse_capture(void)
{
    return status_error(STATUS_INVALID,
                        "an operand's stream is being captured into a " GPU_API " graph: "
                        "pass that stream as stream=");
}

Status scope_wait_for_stream(StreamScope *scope, void *stream)
{
    const cudaStream_t other = static_cast<cudaStream_t>(stream);
    if (other != stream_of(scope)) {
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        const cudaError_t error = cudaStreamIsCapturing(other, &capture);
        cudaGetLastError();
        const bool captured = error == cudaSuccess && capture != cudaStreamCaptureStatusNone;
        if (captured &&
            !scope->captured) { /* waiting would add the scope's stream to the capture */
            return scope_refuse_capture();
        }
        if (scope->captured && !captured) {
            return status_error(STATUS_INVALID,
                                "an operand was made in stream %p, and stream %p is being captured "
                                "into a " GPU_API
                                " graph, which cannot wait for another: make it current "
                                "in the library that owns the operand",
                                stream, scope->stream);
        }
    }
    return scope_checked(scope, "waiting for an operand's stream",
                         stream_await(stream_of(scope), other));
}

void scope_add(StreamScope *scope, DeviceBuffer *buffer, bool writes)
{
    if (scope->uses == 0) {
        scope->order = order_of(stream_of(scope));
    }
    scope->used[scope->uses++] = {buffer, writes};
}

Status scope_use(StreamScope *scope, DeviceBuffer *buffer, bool writes)
{
    scope_add(scope, buffer, writes);
    if (scope->captured) {
        /* Nothing runs now. The stream that replays the graph orders its work. */
        buffer_note_captured(buffer);
        return status_ok();
    }
    return buffer_await(buffer, stream_of(scope), scope->order, writes);
}

Status scope_use_pairs(StreamScope *scope, DeviceBuffer *pairs, const Strided *B)
{
    const Status status = scope_use(scope, pairs, false);
    if (status.code == STATUS_OK && strided_as_matrix(B, &scope->pairs_of)) {
        scope->pairs = pairs;
    }
    return status;
}

Status scope_alloc(StreamScope *scope, size_t bytes, void **memory)
{
    const int device = scope->device;
    Status status = allocator_alloc(device, bytes, stream_of(scope), memory);
    if (status.code == STATUS_OUT_OF_MEMORY) {
        memory_lock_exclusive(device, nullptr); /* calls with host arrays release their memory */
        buffers_collect(device, stream_of(scope), true);
        status = allocator_alloc(device, bytes, stream_of(scope), memory);
        memory_unlock(device);
    }
    return status;
}

void scope_free(StreamScope *scope, void *memory)
{
    allocator_free_after(scope->device, memory, stream_of(scope));
}

Status scope_launch(StreamScope *scope, const Variant *variant, const Sgemm *problem,
                    const Addend *addend, const ElementType *types)
{
    const Matrix &B = problem->B, &split = scope->pairs_of;
    const bool is_split = scope->pairs && B.data == split.data && B.rows == split.rows &&
                          B.cols == split.cols && B.batch_stride == 0;
    Prepared prepared = {is_split ? scope->pairs->matrix.data : nullptr, is_split};
    Launch where = {scope->device, scope->stream,
                    nullptr,       {nullptr, is_split ? &prepared : nullptr},
                    false,         addend};
    for (int operand = 0; types && operand < 2; ++operand) {
        where.elements[operand] = types[operand];
    }
    int64_t launched = 0;
    Status status = launch_contiguous(variant, problem, &where, &launched);
    if (status.code == STATUS_OUT_OF_MEMORY && !scope->captured) {
        memory_lock_exclusive(scope->device, nullptr);
        buffers_collect(scope->device, stream_of(scope), true);
        status = launch_contiguous(variant, problem, &where, &launched);
        memory_unlock(scope->device);
    }
    return status;
}

Status scope_launch_many(StreamScope *scope, const Variant *variant, const Sgemm *problems,
                         int64_t count)
{
    if (ManyLauncher *const launch_many = variant->launch_many[DEVICE_CUDA]) {
        const Launch where = {scope->device, scope->stream, nullptr, {}, false};
        return launch_many(problems, count, &where);
    }
    Status status = status_ok();
    for (int64_t n = 0; n < count && status.code == STATUS_OK; ++n) {
        status = scope_launch(scope, variant, &problems[n]);
    }
    return status;
}

Status scope_copy(StreamScope *scope, const Strided *to, const Strided *from)
{
    return to->rows == 0 || to->cols == 0
               ? status_ok()
               : scope_checked(scope, "copying an array",
                               launch_strided_copy(to, from, stream_of(scope)));
}

Status scope_finish(StreamScope *scope, const char *what)
{
    const cudaError_t error = cudaStreamSynchronize(stream_of(scope));
    scope->finished = error == cudaSuccess;
    return scope_checked(scope, what, error);
}

extern "C" void cuda_give_idle_back(void)
{
    Status why;
    const int count = cuda_device.count(&why);
    for (int index = 0; index < count; ++index) {
        StreamScope scope;
        if (allocator_is_used(index) && scope_enter(index, nullptr, &scope).code == STATUS_OK) {
            buffers_collect(index, stream_of(&scope), true);
            allocator_trim(index);
            scope_leave(&scope);
        }
    }
}
