/* A kernel that holds a stream until the host lets go. */
#ifndef SGEMM_CUDA_BLOCKING_KERNEL_H
#define SGEMM_CUDA_BLOCKING_KERNEL_H

/* Shared by host and device: what the holding kernel waits for, and whether it gave up first. */
struct Blocker {
    int open;
    int timed_out;
};

/* Queues a kernel that runs until blocker->open is not 0, or 20 ms have passed. */
extern "C" cudaError_t launch_blocking_kernel(volatile Blocker *blocker, void *stream);

#endif
