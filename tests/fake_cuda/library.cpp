/* Another library on the fake GPUs, used by ctypes: its memory, its streams, and kernels that
 * take time. */
#ifndef SGEMM_HIP
#include <cuda.h>
#include <cuda_runtime.h>
#endif

#include <string.h>
#include <unistd.h>

#include <vector>

#include "fake_cuda.h"

namespace {

struct Work {
    void *on_device;
    size_t bytes;
    int microseconds;
    std::vector<char> written; /* a copy, since the caller may free its array */
    void *read;                /* NULL for work that writes */
};

void work(void *argument)
{
    Work *const w = static_cast<Work *>(argument);
    usleep(static_cast<useconds_t>(w->microseconds));
    void *const content = fake_cuda_content(w->on_device, w->bytes);
    if (w->read && content) {
        memcpy(w->read, content, w->bytes);
    } else if (w->read) {
        memset(w->read, 0xFF, w->bytes); /* it was freed too early */
    } else if (content) {
        memcpy(content, w->written.data(), w->bytes);
    }
    delete w;
}

#ifdef SGEMM_HIP
thread_local int before;

void enter(int device)
{
    cudaGetDevice(&before);
    cudaSetDevice(device);
}

void leave(void)
{
    cudaSetDevice(before);
}
#else
void enter(int device)
{
    CUcontext context;
    cuDevicePrimaryCtxRetain(&context, device);
    cuCtxPushCurrent(context);
}

void leave(void)
{
    CUcontext context;
    cuCtxPopCurrent(&context);
}
#endif

/* The stream for a handle of this package. */
cudaStream_t stream_named(void *stream)
{
#ifdef SGEMM_HIP
    stream = stream == reinterpret_cast<void *>(1) ? nullptr : stream;
#endif
    return static_cast<cudaStream_t>(stream);
}

void wait_until_open(void *argument)
{
    while (!*static_cast<volatile int *>(argument)) {
        usleep(100);
    }
}

} // namespace

extern "C" {
#pragma GCC visibility push(default)

/* Allocates as if from the library's own memory pool: without a wait. */
void *library_malloc(int device, size_t bytes)
{
    enter(device);
    leave();
    return fake_cuda_malloc(device, bytes);
}

void library_free(void *memory)
{
    fake_cuda_free(memory);
}

/* The calling thread's current device. */
int library_device(void)
{
    int device;
    cudaGetDevice(&device);
    return device;
}

void library_set_device(int device)
{
    cudaSetDevice(device);
}

void *library_stream(int device)
{
    cudaStream_t stream = nullptr;
    enter(device);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    leave();
    return stream;
}

/* A stream that synchronizes with the default stream. */
void *library_blocking_stream(int device)
{
    cudaStream_t stream = nullptr;
    enter(device);
    cudaStreamCreate(&stream);
    leave();
    return stream;
}

void library_destroy_stream(void *stream)
{
    cudaStreamDestroy(stream_named(stream));
}

void library_begin_capture(void *stream)
{
    cudaStreamBeginCapture(stream_named(stream), cudaStreamCaptureModeGlobal);
}

/* The graph for fake_cuda_replay; NULL if the capture was invalidated. */
void *library_end_capture(void *stream)
{
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_named(stream), &graph);
    return graph;
}

void library_synchronize(void *stream)
{
    cudaStreamSynchronize(stream_named(stream));
}

/* Work queued in `stream` from now on waits for the work already in `after`. */
void library_order(void *stream, void *after)
{
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, stream_named(after));
    cudaStreamWaitEvent(stream_named(stream), event, 0);
    cudaEventDestroy(event);
}

/* Queues a kernel that takes this long and writes the current host bytes to device memory. */
void library_write(void *stream, void *on_device, void *on_host, size_t bytes, int microseconds)
{
    const char *const first = static_cast<const char *>(on_host);
    cudaLaunchHostFunc(stream_named(stream), work,
                       new Work{on_device, bytes, microseconds, {first, first + bytes}, nullptr});
}

/* Queues a kernel that copies device memory to the host, where the array must live until then. */
void library_read(void *stream, void *on_device, void *on_host, size_t bytes, int microseconds)
{
    cudaLaunchHostFunc(stream_named(stream), work,
                       new Work{on_device, bytes, microseconds, {}, on_host});
}

/* Queues a kernel that runs until *open is nonzero. */
void library_hold(void *stream, int *open)
{
    cudaLaunchHostFunc(stream_named(stream), wait_until_open, open);
}

#pragma GCC visibility pop
}
