/* A kernel that copies matrices with any strides, alignment and byte order within device memory. */
#ifndef SGEMM_CUDA_STRIDED_COPY_H
#define SGEMM_CUDA_STRIDED_COPY_H

#include "../core/strided.h"

/* Queues a copy of every element of `from` to `to`. Both have the same shape, are not empty and do
 * not overlap. */
extern "C" cudaError_t launch_strided_copy(const Strided *to, const Strided *from, void *stream);

#endif
