/* What one product at a time queues its work on. */
#ifndef SGEMM_CUDA_LANE_H
#define SGEMM_CUDA_LANE_H

#include "../core/status.h"

constexpr int lane_steps = 4;   /* launches that may be under way before the host waits */
constexpr int lane_chunks = 32; /* pieces of staging memory */

/* Streams that wait for no other, and events between them: what step n records, or the way back of
 * piece n, is in number n % lane_steps. */
struct Lane {
    Lane *next;
    cudaStream_t up, run, down;
    cudaEvent_t uploaded[lane_steps], computed[lane_steps], downloaded[lane_steps];
    cudaEvent_t moved[lane_chunks];
};

/* A lane of the current device, which is number `device`. It goes back when all its work is done. */
Status lane_take(int device, Lane **lane);
void lane_give(int device, Lane *lane);

#endif
