/* What one product at a time queues its work on. */
#ifndef SGEMM_CUDA_STREAMS_H
#define SGEMM_CUDA_STREAMS_H

#include "../core/panels.h"
#include "../core/status.h"

constexpr int streams_steps = 4;        /* launches that may be under way before the host waits */
constexpr int streams_chunks = 32;      /* pieces of staging memory */
constexpr int streams_panels = B_AHEAD; /* that GPUs hand each other at a time */

/* Streams that wait for no other, and events between them: what step n records, or the way back of
 * piece n, is in number n % streams_steps, and what belongs to panel n in number n % streams_panels. */
struct Streams {
    Streams *next;
    cudaStream_t up, across, run, down; /* from the host, from other GPUs; kernels; to the host */
    cudaEvent_t share_loaded[streams_panels], shares_copied[streams_panels];
    cudaEvent_t uploaded[streams_steps], computed[streams_steps], downloaded[streams_steps];
    cudaEvent_t moved[streams_chunks];
};

/* Streams of the current device, which is number `device`. They go back when all
 * their work is done, or is but to wait for events. Those that have become part of a graph capture are
 * kept apart until it has ended. */
Status streams_take(int device, Streams **streams);
void streams_give(int device, Streams *streams);
void streams_give_captured(int device, Streams *streams);

#endif
