#include "device_matrix.h"

#include <limits.h>
#include <stdint.h>

#include "../../base/cuda/allocator.h"

Status device_matrix_allocate(int device, int64_t rows, int64_t cols, bool column_major,
                              Matrix *matrix)
{
    const int64_t ld = leading_dimension(column_major ? rows : cols);
    const int64_t lines = column_major ? cols : rows;
    *matrix = {nullptr, rows, cols, column_major ? 1 : ld, column_major ? ld : 1};
    if (ld == 0 || lines == 0) {
        return status_ok();
    }
    const bool countable = lines <= INT64_MAX / static_cast<int64_t>(sizeof(float)) / ld;
    const size_t bytes =
        countable ? static_cast<size_t>(lines) * static_cast<size_t>(ld) * sizeof(float) : SIZE_MAX;
    void *memory = nullptr;
    const Status status = allocator_alloc(device, bytes, nullptr, &memory);
    matrix->data = static_cast<float *>(memory);
    if (status.code != STATUS_OUT_OF_MEMORY) {
        return status;
    }
    return status_error(STATUS_OUT_OF_MEMORY,
                        "cannot allocate a %lld x %lld float32 matrix: %.400s",
                        static_cast<long long>(rows), static_cast<long long>(cols), status.message);
}

void device_matrix_release(int device, Matrix *matrix)
{
    allocator_free(device, matrix->data);
    matrix->data = nullptr;
}

static cudaError_t copy_lines(float *to, int64_t to_ld, const float *from, int64_t from_ld,
                              int64_t length, int64_t lines, cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    const size_t line_bytes = static_cast<size_t>(length) * sizeof(float);
    if (length == 0 || lines == 0) {
        return cudaSuccess;
    }
    if (lines == 1 || (to_ld == length && from_ld == length)) {
        return cudaMemcpyAsync(to, from, line_bytes * static_cast<size_t>(lines), kind, stream);
    }
    const int64_t longest =
        (to_ld > from_ld ? to_ld : from_ld) * static_cast<int64_t>(sizeof(float));
    if (longest <= INT_MAX) {
        return cudaMemcpy2DAsync(to, static_cast<size_t>(to_ld) * sizeof(float), from,
                                 static_cast<size_t>(from_ld) * sizeof(float), line_bytes,
                                 static_cast<size_t>(lines), kind, stream);
    }
    cudaError_t error = cudaSuccess;
    for (int64_t line = 0; line < lines && error == cudaSuccess; ++line) {
        error = cudaMemcpyAsync(to + line * to_ld, from + line * from_ld, line_bytes, kind, stream);
    }
    return error;
}

cudaError_t device_matrix_copy(const Matrix *to, const Matrix *from, cudaMemcpyKind kind,
                               cudaStream_t stream)
{
    if (to->col_stride == 1 && from->col_stride == 1) {
        return copy_lines(to->data, to->row_stride, from->data, from->row_stride, to->cols,
                          to->rows, kind, stream);
    }
    return copy_lines(to->data, to->col_stride, from->data, from->col_stride, to->rows, to->cols,
                      kind, stream);
}
