/* Matrices in the memory of a GPU, and copies of them from and to anywhere. */
#ifndef SGEMM_CUDA_DEVICE_MATRIX_H
#define SGEMM_CUDA_DEVICE_MATRIX_H

#include <stddef.h>

#include "../core/sgemm.h"
#include "../core/status.h"

/* A matrix in memory that is there, its rows so far apart, or its columns when by_columns. */
static inline Matrix matrix_in(void *memory, int64_t rows, int64_t cols, bool by_columns)
{
    const int64_t ld = leading_dimension(by_columns ? rows : cols);
    return {static_cast<float *>(memory), rows, cols, by_columns ? 1 : ld, by_columns ? ld : 1};
}

/* So many bytes, up to where memory that follows them is aligned as an allocation is. */
static inline size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Memory of the current device for a rows x cols matrix, uninitialised, its rows (or columns, when
 * column_major) aligned to 16 bytes where they have four elements. The caller owns it and gives it back
 * to release, which takes what a failed allocate left as well. */
Status device_matrix_allocate(int device, int64_t rows, int64_t cols, bool column_major,
                              Matrix *matrix);
void device_matrix_release(int device, Matrix *matrix);

/* Queues a copy between matrices of one shape and one storage order, whose lines follow one another
 * in memory, in as few calls as the copy engine's pitch allows. */
cudaError_t device_matrix_copy(const Matrix *to, const Matrix *from, cudaMemcpyKind kind,
                               cudaStream_t stream);

#endif
