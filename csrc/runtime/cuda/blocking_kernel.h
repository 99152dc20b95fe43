/* A kernel that blocks a stream until the host releases it. */
#ifndef SGEMM_CUDA_BLOCKING_KERNEL_H
#define SGEMM_CUDA_BLOCKING_KERNEL_H

/* Shared by host and device. The kernel waits for `open` and sets `timed_out` after 20 ms. */
struct Blocker {
    int open;
    int timed_out;
};

/* Queues a kernel that runs until blocker->open is nonzero or 20 ms have passed. */
extern "C" cudaError_t launch_blocking_kernel(volatile Blocker *blocker, void *stream);

#endif
