/* A kernel that copies matrices of any strides, alignment and byte order within device memory. */
#ifndef SGEMM_CUDA_STRIDED_COPY_H
#define SGEMM_CUDA_STRIDED_COPY_H

#include "../core/strided.h"

/* Queues a copy of every element of `from` to `to`, which has the same shape, is not empty and
 * shares no memory with it. */
extern "C" cudaError_t launch_strided_copy(const Strided *to, const Strided *from, void *stream);

#endif
