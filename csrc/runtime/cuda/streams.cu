#include "streams.h"

#include <pthread.h>
#include <stdlib.h>

#include "../../base/cuda/failures.h"

namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Streams *idle[most_devices], *captured[most_devices];

template <int count> cudaError_t make_events(cudaEvent_t (&events)[count])
{
    cudaError_t error = cudaSuccess;
    for (int index = 0; index < count && error == cudaSuccess; ++index) {
        error = cudaEventCreateWithFlags(&events[index], cudaEventDisableTiming);
    }
    return error;
}

template <int count> void destroy_events(cudaEvent_t (&events)[count])
{
    for (cudaEvent_t event : events) {
        if (event) {
            cudaEventDestroy(event);
        }
    }
}

cudaError_t fill(Streams *streams)
{
    cudaError_t error = cudaSuccess;
    for (cudaStream_t *const stream :
         {&streams->h2d, &streams->p2p, &streams->run, &streams->d2h}) {
        error =
            error == cudaSuccess ? cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking) : error;
    }
    error = error == cudaSuccess ? make_events(streams->share_loaded) : error;
    error = error == cudaSuccess ? make_events(streams->shares_copied) : error;
    error = error == cudaSuccess ? make_events(streams->uploaded) : error;
    error = error == cudaSuccess ? make_events(streams->computed) : error;
    error = error == cudaSuccess ? make_events(streams->downloaded) : error;
    return error == cudaSuccess ? make_events(streams->moved) : error;
}

void destroy(Streams *streams)
{
    for (const cudaStream_t stream : {streams->h2d, streams->p2p, streams->run, streams->d2h}) {
        if (stream) {
            cudaStreamDestroy(stream);
        }
    }
    destroy_events(streams->share_loaded);
    destroy_events(streams->shares_copied);
    destroy_events(streams->uploaded);
    destroy_events(streams->computed);
    destroy_events(streams->downloaded);
    destroy_events(streams->moved);
    free(streams);
}

void push(Streams **list, Streams *streams)
{
    pthread_mutex_lock(&mutex);
    streams->next = *list;
    *list = streams;
    pthread_mutex_unlock(&mutex);
}

bool is_captured(const Streams *streams)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(streams->run, &status);
    cudaGetLastError();
    return error != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

/* The first in a list that is not being captured, or NULL. Caller holds `mutex`. */
Streams *pop_free(Streams **place)
{
    while (*place && is_captured(*place)) {
        place = &(*place)->next;
    }
    Streams *const found = *place;
    if (found) {
        *place = found->next;
    }
    return found;
}

} // namespace

Status streams_alloc(int device, Streams **streams)
{
    pthread_mutex_lock(&mutex);
    *streams = idle[device];
    if (*streams) {
        idle[device] = (*streams)->next;
    } else {
        *streams = pop_free(&captured[device]);
    }
    pthread_mutex_unlock(&mutex);
    if (*streams) {
        return status_ok();
    }
    *streams = static_cast<Streams *>(calloc(1, sizeof(Streams)));
    if (!*streams) {
        return status_error(STATUS_OUT_OF_MEMORY,
                            "no host memory for the record of a GPU's streams");
    }
    const cudaError_t error = fill(*streams);
    if (error == cudaSuccess) {
        return status_ok();
    }
    destroy(*streams);
    *streams = nullptr;
    return device_failed(device, "creating streams", error);
}

void streams_free(int device, Streams *streams)
{
    push(&idle[device], streams);
}

void streams_free_captured(int device, Streams *streams)
{
    push(&captured[device], streams);
}
