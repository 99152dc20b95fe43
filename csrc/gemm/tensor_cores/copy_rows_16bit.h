/* Copies an operand of 16-bit elements to where TMA can load it: with the same contiguous
 * direction, and rows that begin on 16-byte boundaries. */
#ifndef SGEMM_KERNELS_COPY_ROWS_16BIT_H
#define SGEMM_KERNELS_COPY_ROWS_16BIT_H

#include "../kernel/kernel.h"

namespace {

struct RowCopy16 {
    Matrix from, to;
};

constexpr int copy16_threads = 256, copy16_elements = 2048; // of a row, by one block

__host__ __device__ __forceinline__ uint16_t *element_16bit(const Matrix &X, int64_t row,
                                                            int64_t col, unsigned matrix = 0)
{
    return reinterpret_cast<uint16_t *>(X.data) + matrix * X.batch_stride + row * X.row_stride +
           col * X.col_stride;
}

/* One block copies a part of one row. */
__global__ void __launch_bounds__(copy16_threads) copy_rows_16bit(const RowCopy16 copy)
{
    const Origin first = tile_origin(copy.to, 1, copy16_elements);
    UNROLL(copy16_elements / copy16_threads)
    for (int i = threadIdx.x; i < copy16_elements; i += copy16_threads) {
        if (inside(copy.from, first.row, first.col + i)) {
            *element_16bit(copy.to, first.row, first.col + i, blockIdx.y) =
                *element_16bit(copy.from, first.row, first.col + i, blockIdx.y);
        }
    }
}

/* Makes a row-major copy of X, or of a batch of X, in scratch memory, whose rows have `pitch`
 * elements of `bytes`, by a kernel like copy_rows_16bit. Calls multiply(the copy). */
template <class Multiply>
Status with_rows_copied_by(void (*kernel)(RowCopy16), const char *symbol, const Matrix &X,
                           size_t bytes, const Launch *where, const Multiply &multiply,
                           int64_t count = 1)
{
    const KernelSpec spec = {.symbol = symbol, .threads = {copy16_threads, 1}};
    const int64_t pitch = (X.cols + 7) / 8 * 8;
    const int64_t matrices = X.batch_stride == 0 ? 1 : count;
    if (pitch > INT64_MAX / 4 / X.rows / matrices) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for a copy of %lld rows",
                            static_cast<long long>(X.rows));
    }
    const int64_t apart = matrices > 1 ? X.rows * pitch : 0;
    void *memory;
    Status status =
        scratch_alloc(static_cast<size_t>(matrices * X.rows * pitch) * bytes, where, &memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    const RowCopy16 copy = {X, {static_cast<float *>(memory), X.rows, X.cols, pitch, 1, apart}};
    status =
        launch_blocks(kernel, spec, tiles_of(copy.to, 1, copy16_elements), copy, where, matrices);
    if (status.code == STATUS_OK) {
        status = multiply(copy.to);
    }
    scratch_free(memory, where);
    return status;
}

template <class Multiply>
Status with_rows_copied_16bit(const Matrix &X, int64_t count, const Launch *where,
                              const Multiply &multiply)
{
    return with_rows_copied_by(copy_rows_16bit, "copy_rows_16bit", X, sizeof(uint16_t), where,
                               multiply, count);
}

} // namespace

#endif
