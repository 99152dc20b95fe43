/* Copies an operand of 16-bit elements to where TMA can load it: contiguous along K, with rows that
 * begin on 16-byte boundaries. */
#ifndef SGEMM_KERNELS_COPY_ROWS_16BIT_H
#define SGEMM_KERNELS_COPY_ROWS_16BIT_H

#include "../kernel/kernel.h"

namespace {

struct RowCopy16 {
    Matrix from, to;
};

constexpr int copy16_side = 64, copy16_threads = 256; // of a block's square tile

__host__ __device__ __forceinline__ uint16_t *element_16bit(const Matrix &X, int64_t row,
                                                            int64_t col, unsigned matrix = 0)
{
    return reinterpret_cast<uint16_t *>(X.data) + matrix * X.batch_stride + row * X.row_stride +
           col * X.col_stride;
}

/* One block copies a tile, through shared memory if neighbours in `from` are in different rows. */
__global__ void __launch_bounds__(copy16_threads) copy_rows_16bit(const RowCopy16 copy)
{
    constexpr int step = copy16_threads / copy16_side;
    __shared__ uint16_t tile[copy16_side][copy16_side + 2]; // 33 words: all banks down a column
    const Origin first = tile_origin(copy.to, copy16_side, copy16_side);
    const int near = threadIdx.x % copy16_side, far = threadIdx.x / copy16_side;
    const bool by_rows = copy.from.col_stride == 1;
    UNROLL(copy16_side / step)
    for (int i = far; i < copy16_side; i += step) {
        const int row = by_rows ? i : near, col = by_rows ? near : i;
        if (inside(copy.from, first.row + row, first.col + col)) {
            tile[row][col] =
                *element_16bit(copy.from, first.row + row, first.col + col, blockIdx.y);
        }
    }
    __syncthreads();
    UNROLL(copy16_side / step)
    for (int i = far; i < copy16_side; i += step) {
        if (inside(copy.to, first.row + i, first.col + near)) {
            *element_16bit(copy.to, first.row + i, first.col + near, blockIdx.y) = tile[i][near];
        }
    }
}

/* Makes a copy of X, or of a batch of X, in scratch memory that is contiguous along its rows, for
 * multiply(copy). */
template <class Multiply>
Status with_rows_copied_16bit(const Matrix &X, int64_t count, const Launch *where,
                              const Multiply &multiply)
{
    const KernelSpec spec = {.symbol = "copy_rows_16bit", .threads = {copy16_threads, 1}};
    const int64_t pitch = (X.cols + 7) / 8 * 8;
    const int64_t matrices = X.batch_stride == 0 ? 1 : count;
    if (pitch > INT64_MAX / 4 / X.rows / matrices) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for a copy of %lld rows",
                            static_cast<long long>(X.rows));
    }
    const int64_t apart = matrices > 1 ? X.rows * pitch : 0;
    void *memory;
    Status status = scratch_alloc(static_cast<size_t>(matrices * X.rows * pitch) * sizeof(uint16_t),
                                  where, &memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    const RowCopy16 copy = {X, {static_cast<float *>(memory), X.rows, X.cols, pitch, 1, apart}};
    status = launch_blocks(copy_rows_16bit, spec, tiles_of(copy.to, copy16_side, copy16_side), copy,
                           where, matrices);
    if (status.code == STATUS_OK) {
        status = multiply(copy.to);
    }
    scratch_free(memory, where);
    return status;
}

} // namespace

#endif
