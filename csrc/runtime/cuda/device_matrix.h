/* Matrices in GPU memory, and copies between them and host memory. */
#ifndef SGEMM_CUDA_DEVICE_MATRIX_H
#define SGEMM_CUDA_DEVICE_MATRIX_H

#include <stddef.h>

#include "../../base/sgemm.h"
#include "../../base/status.h"

/* A matrix of that type in existing memory, with its leading dimension; column-major if
 * by_columns. */
static inline Matrix matrix_in(void *memory, ElementType type, int64_t rows, int64_t cols,
                               bool by_columns)
{
    const int64_t ld = leading_dimension_of(type, by_columns ? rows : cols);
    return {static_cast<float *>(memory), rows, cols, by_columns ? 1 : ld, by_columns ? ld : 1};
}

/* Rounds up to the alignment of allocations. */
static inline size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Allocates an uninitialised rows x cols matrix on the current device. Rows (columns if
 * column_major) of at least four elements start on 16-byte boundaries. The caller must release it;
 * releasing after a failed allocation is allowed. */
Status device_matrix_allocate(int device, int64_t rows, int64_t cols, bool column_major,
                              Matrix *matrix);
void device_matrix_release(int device, Matrix *matrix);

/* Queues a copy between two matrices of the same shape and storage order, with non-overlapping rows
 * (or columns), in as few calls as the copy engine's pitch limit allows. */
cudaError_t device_matrix_copy(const Matrix *to, const Matrix *from, cudaMemcpyKind kind,
                               cudaStream_t stream, ElementType type = ELEMENT_FLOAT32);

#endif
