/* Copies an operand of float32 or 16-bit elements to where TMA can load it: contiguous along K,
 * with rows that begin on 16-byte boundaries. */
#ifndef SGEMM_KERNELS_COPY_ROWS_H
#define SGEMM_KERNELS_COPY_ROWS_H

#include "../kernel/kernel.h"

namespace {

struct RowCopy {
    Matrix from, to;
};

constexpr int copy_side = 64, copy_threads = 256; // of a block's square tile

template <class Element>
__device__ __forceinline__ Element *element_of(const Matrix &X, int64_t row, int64_t col)
{
    return reinterpret_cast<Element *>(X.data) + blockIdx.y * X.batch_stride + row * X.row_stride +
           col * X.col_stride;
}

/* One block copies a tile, through shared memory if neighbours in `from` are in different rows. */
template <class Element>
__global__ void __launch_bounds__(copy_threads) copy_rows(const RowCopy copy)
{
    constexpr int step = copy_threads / copy_side;
    constexpr int padding = 4 / sizeof(Element); // a word: all banks down a column
    __shared__ Element tile[copy_side][copy_side + padding];
    const Origin first = tile_origin(copy.to, copy_side, copy_side);
    const int near = threadIdx.x % copy_side, far = threadIdx.x / copy_side;
    const bool by_rows = copy.from.col_stride == 1;
    UNROLL(copy_side / step)
    for (int i = far; i < copy_side; i += step) {
        const int row = by_rows ? i : near, col = by_rows ? near : i;
        if (inside(copy.from, first.row + row, first.col + col)) {
            tile[row][col] = *element_of<Element>(copy.from, first.row + row, first.col + col);
        }
    }
    __syncthreads();
    UNROLL(copy_side / step)
    for (int i = far; i < copy_side; i += step) {
        if (inside(copy.to, first.row + i, first.col + near)) {
            *element_of<Element>(copy.to, first.row + i, first.col + near) = tile[i][near];
        }
    }
}

/* Calls multiply(the copy) and then frees the copy. */
template <class Element = float, class Multiply>
Status with_rows_copied(const Matrix &X, int64_t count, const Launch *where,
                        const Multiply &multiply)
{
    constexpr bool is_float = sizeof(Element) == sizeof(float);
    constexpr int64_t unit = 16 / sizeof(Element), most_rows = is_float ? INT32_MAX : INT64_MAX;
    const KernelSpec spec = {.symbol = is_float ? "copy_rows" : "copy_rows_16bit",
                             .threads = {copy_threads, 1}};
    const int64_t matrices = X.batch_stride == 0 ? 1 : count;
    const int64_t pitch = (X.cols + unit - 1) / unit * unit;
    // TMA sees float32 matrices of a batch as one.
    if (X.rows > most_rows / matrices || pitch > INT64_MAX / 4 / (X.rows * matrices)) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for a copy of %lld rows",
                            static_cast<long long>(X.rows));
    }
    void *memory;
    Status status = scratch_alloc(static_cast<size_t>(matrices * X.rows * pitch) * sizeof(Element),
                                  where, &memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    const int64_t apart = matrices > 1 ? X.rows * pitch : 0;
    const RowCopy copy = {X, {static_cast<float *>(memory), X.rows, X.cols, pitch, 1, apart}};
    status = launch_blocks(copy_rows<Element>, spec, tiles_of(copy.to, copy_side, copy_side), copy,
                           where, matrices);
    if (status.code == STATUS_OK) {
        status = multiply(copy.to);
    }
    scratch_free(memory, where);
    return status;
}

} // namespace

#endif
