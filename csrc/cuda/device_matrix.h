/* Matrices in the memory of a GPU, and copies of them from and to anywhere. */
#ifndef SGEMM_CUDA_DEVICE_MATRIX_H
#define SGEMM_CUDA_DEVICE_MATRIX_H

#include "../core/sgemm.h"
#include "../core/status.h"

/* The distance between a device matrix's lines of `length` elements: whole quads, unless a line is
 * shorter than one. */
static inline int64_t leading_dimension(int64_t length)
{
    return length < 4 ? length : (length + 3) / 4 * 4;
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
