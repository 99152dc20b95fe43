/* A kernel that copies matrices with any strides, alignment and byte order within device memory. */
#ifndef SGEMM_CUDA_STRIDED_COPY_H
#define SGEMM_CUDA_STRIDED_COPY_H

#include "../strided.h"

/* Queues a copy of every element of `from` to `to`. Both have the same shape, are not empty and do
 * not overlap. */
extern "C" cudaError_t launch_strided_copy(const Strided *to, const Strided *from, void *stream);

/* Queues C = alpha * X + beta * C. X has C's shape, or no data and is 0. C is not empty, and is not
 * read if beta is 0. */
extern "C" cudaError_t launch_combine(const Matrix *C, const Matrix *X, float alpha, float beta,
                                      void *stream);

#endif
