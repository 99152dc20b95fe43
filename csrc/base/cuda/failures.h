/* CUDA errors as Status values, and the GPUs that a sticky error made unusable in this process. */
#ifndef SGEMM_CUDA_FAILURES_H
#define SGEMM_CUDA_FAILURES_H

#include "../status.h"

constexpr int most_devices = 64;

/* The Status for a failed CUDA call; `what` names it, as in "copying to the GPU". After a sticky
 * error the device is recorded as unusable. */
Status device_failed(int device, const char *what, cudaError_t error);

/* The same, or success if `error` is cudaSuccess. */
Status device_checked(int device, const char *what, cudaError_t error);

/* Fails if the device is unusable or its number is too large. Makes no CUDA call. */
Status device_works(int device);

#endif
