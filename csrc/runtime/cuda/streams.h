/* The streams and events that one product at a time uses. */
#ifndef SGEMM_CUDA_STREAMS_H
#define SGEMM_CUDA_STREAMS_H

#include "../../base/status.h"
#include "../panels.h"

constexpr int streams_steps = 4;        /* launches in flight before the host waits */
constexpr int streams_chunks = 32;      /* chunks of staging memory */
constexpr int streams_panels = B_AHEAD; /* shared panels in flight */

/* Non-blocking streams and the events between them. Step n and the download of piece n use the
 * events with index n % streams_steps; shared panel n uses those with index n % streams_panels. */
struct Streams {
    Streams *next;
    cudaStream_t h2d, p2p, run, d2h; /* host to GPU; GPU to GPU; kernels; GPU to host */
    cudaEvent_t share_loaded[streams_panels], shares_copied[streams_panels];
    cudaEvent_t uploaded[streams_steps], computed[streams_steps], downloaded[streams_steps];
    cudaEvent_t moved[streams_chunks];
};

/* Takes streams of the current device, number `device`. Return them when all their work is done
 * or only waits for events. Streams that became part of a graph capture are reused after it has
 * ended. */
Status streams_alloc(int device, Streams **streams);
void streams_free(int device, Streams *streams);
void streams_free_captured(int device, Streams *streams);

#endif
