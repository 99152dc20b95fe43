/* Copies of matrices between a host and a GPU. */
#ifndef SGEMM_CUDA_COPY_H
#define SGEMM_CUDA_COPY_H

#include "../core/sgemm.h"

/* The distance between a device matrix's lines of `length` elements: whole quads, unless a line is
 * shorter than one. */
static inline int64_t leading_dimension(int64_t length)
{
    return length < 4 ? length : (length + 3) / 4 * 4;
}

/* Queues a copy between matrices of one shape and one storage order, whose lines follow one another
 * in memory, in as few calls as the copy engine's pitch allows. In device.cu. */
cudaError_t queue_matrix_copy(const Matrix *to, const Matrix *from, cudaMemcpyKind kind,
                              cudaStream_t stream);

#endif
