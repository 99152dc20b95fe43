/* The way back to float32, for results that two halves are not enough for: the places in the slots of
 * 14_certify.h one by one, marked tiles as a whole. */
#ifndef SGEMM_KERNELS_14_RECOMPUTE_H
#define SGEMM_KERNELS_14_RECOMPUTE_H

#include "14_certify.h"

namespace {

constexpr int dot_threads = 256;

/* The results of a tile's slots, as dot products, each by all threads of a block. */
template <class T> __global__ void __launch_bounds__(dot_threads) fill_slots(const HalvesProduct q)
{
    __shared__ float parts[dot_threads];
    let_next_kernel_begin();
    wait_for_kernel_before();
    const int count = q.failed[blockIdx.x];
    const Origin tile = raster_origin(q.p.C, T::BM, T::BN, blockIdx.x);
    const Matrix &A = q.p.A, &B = q.p.B;
    for (int slot = 0; slot < count; ++slot) {
        const int place_in_tile = q.place[static_cast<int64_t>(blockIdx.x) * slots + slot];
        const int64_t row = tile.row + place_in_tile / T::BN,
                      col = tile.col + place_in_tile % T::BN;
        float sum = 0.0f;
        UNROLL(4)
        for (int64_t k = threadIdx.x; k < A.cols; k += dot_threads) {
            sum = multiply_add(at(A, row, k), at(B, k, col), sum);
        }
        parts[threadIdx.x] = sum;
        for (int half = dot_threads / 2; half > 0; half /= 2) {
            __syncthreads();
            if (static_cast<int>(threadIdx.x) < half) {
                parts[threadIdx.x] += parts[threadIdx.x + half];
            }
        }
        if (threadIdx.x == 0) {
            store(q.p, results(q.p.C, row, col), 0, 0, parts[0]);
        }
        __syncthreads();
    }
}

/* Marked tiles, by the block product of the rungs in float32: by one block, or several side by side. */
template <class T, class F> constexpr int blocks_of_tile = T::BN / F::BN;

template <class T, class F>
__global__ void __launch_bounds__(F::threads) fill_tiles(const HalvesProduct q)
{
    static_assert(T::BM == F::BM && T::BN % F::BN == 0, "together the same tile of C");
    const unsigned number = blockIdx.x / blocks_of_tile<T, F>;
    wait_for_kernel_before();
    if (q.failed[number] != marked) {
        return;
    }
    Origin tile = raster_origin(q.p.C, T::BM, T::BN, number);
    tile.col += blockIdx.x % blocks_of_tile<T, F> * F::BN;
    if (tile.col >= q.p.C.cols) {
        return;
    }
    const ThreadTile<F> own(threadIdx.x);
    float sum[F::TM][F::TN] = {};
    block_product<F>(q.p.A, q.p.B, tile, own, sum);
    store_thread_tile<F>(q.p, tile, own, sum);
}

} // namespace

#endif
