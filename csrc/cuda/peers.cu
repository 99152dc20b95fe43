#include "peers.h"

#include <pthread.h>

#include "failures.h"
#include "session.h"

namespace {

enum Way : char { UNKNOWN, DIRECT, BY_HOST };

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Way ways[most_devices][most_devices]; /* from the smaller number to the larger */

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

} // namespace

bool peers_connect(int home, int away)
{
    pthread_mutex_lock(&mutex);
    Way *const way = home < away ? &ways[home][away] : &ways[away][home];
    if (*way == UNKNOWN) {
        *way = find_way(home, away);
        cudaGetLastError(); /* not an error: copies only take longer */
    }
    const bool direct = *way == DIRECT;
    pthread_mutex_unlock(&mutex);
    return direct;
}
