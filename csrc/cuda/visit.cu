#include "visit.h"

#include "allocator.h"
#include "device_buffer.h"
#include "session.h"
#include "streams.h"
#include "strided_copy.h"
#include "turns.h"

Status visit_enter(int index, void *stream, Visit *visit)
{
    *visit = {};
    visit->device = index;
    Status status = session_open(index);
    if (status.code != STATUS_OK) {
        return status;
    }
    if (stream) {
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        visit->stream = stream;
        status = visit_checked(visit, "asking whether the stream is captured",
                               cudaStreamIsCapturing(stream_of(visit), &capture));
        visit->captured = capture != cudaStreamCaptureStatusNone;
    } else {
        status = streams_take(index, &visit->streams);
        visit->stream = visit->streams ? visit->streams->run : nullptr;
    }
    if (status.code != STATUS_OK) {
        session_close();
        return status;
    }
    if (!visit->captured) {
        buffers_collect(index, stream_of(visit), false);
    }
    return status;
}

/* Whether the visit's stream is captured: one of the package's becomes so by waiting for another that
 * is, after which the call is refused. */
static bool is_captured(const Visit *visit)
{
    if (!visit->streams || visit->finished) {
        return visit->captured;
    }
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream_of(visit), &capture);
    cudaGetLastError();
    return capture != cudaStreamCaptureStatusNone;
}

void visit_leave(Visit *visit)
{
    const int device = visit->device;
    const bool captured = is_captured(visit);
    if (!captured) {
        /* A visit that failed early has not waited for what buffers that were collected wait for. */
        allocator_settle(device, stream_of(visit), visit->streams && visit->finished);
    }
    if (visit->streams) {
        (captured ? streams_give_captured : streams_give)(device, visit->streams);
    }
    session_close();
}

Status visit_refuse_capture(void)
{
    return status_error(STATUS_INVALID,
                        "an operand's stream is being captured into a " GPU_API " graph: "
                        "pass that stream as stream=");
}

Status visit_wait_for_stream(Visit *visit, void *stream)
{
    const cudaStream_t other = static_cast<cudaStream_t>(stream);
    if (other != stream_of(visit)) {
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        const cudaError_t error = cudaStreamIsCapturing(other, &capture);
        cudaGetLastError();
        const bool captured = error == cudaSuccess && capture != cudaStreamCaptureStatusNone;
        if (captured && !visit->captured) { /* to wait would make the visit's stream part of it */
            return visit_refuse_capture();
        }
        if (visit->captured && !captured) {
            return status_error(STATUS_INVALID,
                                "an operand was made in stream %p, and stream %p is being captured "
                                "into a " GPU_API
                                " graph, which cannot wait for another: make it current "
                                "in the library that lends the operand",
                                stream, visit->stream);
        }
    }
    return visit_checked(visit, "waiting for an operand's stream",
                         stream_await(stream_of(visit), other));
}

Status visit_use(Visit *visit, DeviceBuffer *buffer, bool writes)
{
    visit->used[visit->uses++] = {buffer, writes};
    if (visit->captured) {
        /* Nothing runs now, and what does when the graph is replayed is ordered by its stream. */
        buffer_note_captured(buffer);
        return status_ok();
    }
    return buffer_await(buffer, stream_of(visit), writes);
}

Status visit_take(Visit *visit, size_t bytes, void **memory)
{
    const int device = visit->device;
    Status status = allocator_take(device, bytes, stream_of(visit), memory);
    if (status.code == STATUS_OUT_OF_MEMORY) {
        turn_begin_alone(device, nullptr); /* products of host arrays return their memory */
        buffers_collect(device, stream_of(visit), true);
        status = allocator_take(device, bytes, stream_of(visit), memory);
        turn_end(device);
    }
    return status;
}

void visit_give(Visit *visit, void *memory)
{
    allocator_give_after(visit->device, memory, stream_of(visit));
}

Status visit_launch(Visit *visit, const Variant *variant, const Sgemm *problem)
{
    const Launch where = {visit->device, visit->stream, nullptr, nullptr, false};
    Status status = variant->launch[DEVICE_CUDA](problem, &where);
    if (status.code == STATUS_OUT_OF_MEMORY && !visit->captured) {
        turn_begin_alone(visit->device, nullptr);
        buffers_collect(visit->device, stream_of(visit), true);
        status = variant->launch[DEVICE_CUDA](problem, &where);
        turn_end(visit->device);
    }
    return status;
}

Status visit_copy(Visit *visit, const Strided *to, const Strided *from)
{
    return to->rows == 0 || to->cols == 0
               ? status_ok()
               : visit_checked(visit, "copying an array",
                               launch_strided_copy(to, from, stream_of(visit)));
}

Status visit_finish(Visit *visit, const char *what)
{
    const cudaError_t error = cudaStreamSynchronize(stream_of(visit));
    visit->finished = error == cudaSuccess;
    return visit_checked(visit, what, error);
}

extern "C" void cuda_give_idle_back(void)
{
    Status why;
    const int count = cuda_device.count(&why);
    for (int index = 0; index < count; ++index) {
        Visit visit;
        if (allocator_is_used(index) && visit_enter(index, nullptr, &visit).code == STATUS_OK) {
            buffers_collect(index, stream_of(&visit), true);
            allocator_trim(index);
            visit_leave(&visit);
        }
    }
}
