/* What CUDA says of a failure, as a status; and which GPUs this process has lost. */
#ifndef SGEMM_CUDA_FAILURES_H
#define SGEMM_CUDA_FAILURES_H

#include "../core/status.h"

constexpr int most_devices = 64; /* that this package serves */

/* The failure of a call, which `what` names as in "copying to the GPU". One that CUDA never forgets
 * is remembered as the device's end. */
Status device_failed(int device, const char *what, cudaError_t error);

/* The same, or success. */
Status device_checked(int device, const char *what, cudaError_t error);

/* Success, or how the device was lost, or that there are too many. Cheap. */
Status device_works(int device);

#endif
