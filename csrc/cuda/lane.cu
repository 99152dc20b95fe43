#include "lane.h"

#include <pthread.h>
#include <stdlib.h>

#include "memory.h"

namespace {

constexpr int most_devices = 64;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Lane *idle[most_devices];

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

cudaError_t fill(Lane *lane)
{
    cudaError_t error = cudaSuccess;
    for (cudaStream_t *const stream : {&lane->up, &lane->run, &lane->down}) {
        error =
            error == cudaSuccess ? cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking) : error;
    }
    error = error == cudaSuccess ? make_events(lane->uploaded) : error;
    error = error == cudaSuccess ? make_events(lane->computed) : error;
    error = error == cudaSuccess ? make_events(lane->downloaded) : error;
    return error == cudaSuccess ? make_events(lane->moved) : error;
}

void destroy(Lane *lane)
{
    for (const cudaStream_t stream : {lane->up, lane->run, lane->down}) {
        if (stream) {
            cudaStreamDestroy(stream);
        }
    }
    destroy_events(lane->uploaded);
    destroy_events(lane->computed);
    destroy_events(lane->downloaded);
    destroy_events(lane->moved);
    free(lane);
}

} // namespace

Status lane_take(int device, Lane **lane)
{
    pthread_mutex_lock(&mutex);
    *lane = idle[device];
    if (*lane) {
        idle[device] = (*lane)->next;
    }
    pthread_mutex_unlock(&mutex);
    if (*lane) {
        return status_ok();
    }
    *lane = static_cast<Lane *>(calloc(1, sizeof(Lane)));
    if (!*lane) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory on the host for a GPU's streams");
    }
    const cudaError_t error = fill(*lane);
    if (error == cudaSuccess) {
        return status_ok();
    }
    destroy(*lane);
    *lane = nullptr;
    return device_failed(device, "making streams", error);
}

void lane_give(int device, Lane *lane)
{
    pthread_mutex_lock(&mutex);
    lane->next = idle[device];
    idle[device] = lane;
    pthread_mutex_unlock(&mutex);
}
