/* The library's handle of a device, which serves one stream at a time. */
#ifndef SGEMM_CUDA_CUBLAS_H
#define SGEMM_CUDA_CUBLAS_H

#include "../core/variant.h"

extern "C" Launcher launch_cublas_cuda;
#ifndef SGEMM_HIP
extern "C" Launcher launch_cublas_tf32_cuda;
#endif

/* Whether the library computes a variant's products. */
bool cublas_launches(const Variant *variant);

/* Has the stream wait until the current device's handle is free, and keeps other threads from it until
 * cublas_end, which is owed after success. A launch by this thread in between adds no call of its own
 * to the stream, so that a measurement can have these two outside its time. */
Status cublas_begin(int device, cudaStream_t stream);
Status cublas_end(int device, cudaStream_t stream);

#endif
