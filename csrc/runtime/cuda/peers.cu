#include "peers.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "../../base/cuda/failures.h"
#include "session.h"

namespace {

enum Way : char { UNKNOWN, DIRECT, BY_HOST };

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Way ways[most_devices][most_devices]; /* [smaller device number][larger device number] */

/* Enables access from the current device to another's memory. */
cudaError_t open_way(int away)
{
    const cudaError_t error = cudaDeviceEnablePeerAccess(away, 0);
    return error == cudaErrorPeerAccessAlreadyEnabled ? cudaSuccess : error;
}

/* Returns UNKNOWN on failure; a later call tries again. */
Way find_way(int home, int away)
{
    int there = 0, back = 0;
    cudaError_t error = cudaDeviceCanAccessPeer(&there, home, away);
    error = error == cudaSuccess ? cudaDeviceCanAccessPeer(&back, away, home) : error;
    if (error == cudaSuccess && !(there && back)) {
        return BY_HOST;
    }
    error = error == cudaSuccess ? open_way(away) : error;
    if (error != cudaSuccess || session_open(away).code != STATUS_OK) {
        return UNKNOWN;
    }
    error = open_way(home);
    session_close();
    return error == cudaSuccess ? DIRECT : UNKNOWN;
}

/* Measures copies to the current device, in floats per second: the fastest of three rounds. Returns
 * 0 on failure. */
double time_copies(const void *from, size_t bytes)
{
    constexpr int rounds = 3, copies = 4;
    void *to = nullptr;
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaMalloc(&to, bytes);
    if (error == cudaSuccess) {
        error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
    std::chrono::duration<double> least = std::chrono::hours(1);
    for (int round = 0; round < rounds && error == cudaSuccess; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        for (int copy = 0; copy < copies && error == cudaSuccess; ++copy) {
            error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
        }
        error = error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
        least = std::min<decltype(least)>(least, std::chrono::steady_clock::now() - begin);
    }
    if (stream) {
        cudaStreamDestroy(stream);
    }
    cudaFree(to);
    const double floats = copies * static_cast<double>(bytes / sizeof(float));
    return error == cudaSuccess ? floats / least.count() : 0;
}

/* Copies from `held`, or from memory of its own if that is too small for a good measurement. */
double measure_copies(int away, const void *held, size_t held_bytes)
{
    constexpr size_t bytes = size_t{32} << 20;
    void *own = nullptr;
    if (held_bytes < bytes && cudaMalloc(&own, bytes) != cudaSuccess) {
        cudaGetLastError(); /* clears the error: there is no memory for a better measurement */
        own = nullptr;
    }
    double found = 0;
    if (session_open(away).code == STATUS_OK) {
        found = time_copies(own ? own : held, own ? bytes : std::min(bytes, held_bytes));
        session_close();
    }
    cudaFree(own);
    cudaGetLastError(); /* clears the error: without a measurement, one GPU computes alone */
    return found;
}

} // namespace

double peers_floats_a_second(int home, int away, const void *from, size_t bytes)
{
    static double known[most_devices][most_devices];
    peers_connect(home, away);
    pthread_mutex_lock(&mutex);
    double *const floats = &known[home][away];
    if (*floats == 0) {
        *floats = measure_copies(away, from, bytes);
    }
    const double found = *floats;
    pthread_mutex_unlock(&mutex);
    return found;
}

bool peers_connect(int home, int away)
{
    pthread_mutex_lock(&mutex);
    Way *const way = home < away ? &ways[home][away] : &ways[away][home];
    if (*way == UNKNOWN) {
        *way = find_way(home, away);
        cudaGetLastError(); /* clears the error: without peer access, copies only take longer */
    }
    const bool direct = *way == DIRECT;
    pthread_mutex_unlock(&mutex);
    return direct;
}
