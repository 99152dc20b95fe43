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

/* Lines of bytes, and the bytes from one to the next. */
struct Lines {
    char *first;
    int64_t pitch;
};

static cudaError_t copy_lines(const Lines &to, const Lines &from, int64_t bytes, int64_t count,
                              cudaMemcpyKind kind, cudaStream_t stream)
{
    const auto each = static_cast<size_t>(bytes);
    if (bytes == 0 || count == 0) {
        return cudaSuccess;
    }
    if (count == 1 || (to.pitch == bytes && from.pitch == bytes)) {
        return cudaMemcpyAsync(to.first, from.first, each * static_cast<size_t>(count), kind,
                               stream);
    }
    if ((to.pitch > from.pitch ? to.pitch : from.pitch) <= INT_MAX) {
        return cudaMemcpy2DAsync(to.first, static_cast<size_t>(to.pitch), from.first,
                                 static_cast<size_t>(from.pitch), each, static_cast<size_t>(count),
                                 kind, stream);
    }
    cudaError_t error = cudaSuccess;
    for (int64_t line = 0; line < count && error == cudaSuccess; ++line) {
        error = cudaMemcpyAsync(to.first + line * to.pitch, from.first + line * from.pitch, each,
                                kind, stream);
    }
    return error;
}

static Lines lines_of(const Matrix &matrix, bool by_rows, int64_t size)
{
    return {reinterpret_cast<char *>(matrix.data),
            (by_rows ? matrix.row_stride : matrix.col_stride) * size};
}

cudaError_t device_matrix_copy(const Matrix *to, const Matrix *from, cudaMemcpyKind kind,
                               cudaStream_t stream, ElementType type)
{
    const int64_t size = element_bytes(type);
    const bool by_rows = to->col_stride == 1 && from->col_stride == 1;
    return copy_lines(lines_of(*to, by_rows, size), lines_of(*from, by_rows, size),
                      (by_rows ? to->cols : to->rows) * size, by_rows ? to->rows : to->cols, kind,
                      stream);
}
