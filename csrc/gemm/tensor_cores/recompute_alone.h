/* Computes results that fail the error check again in fp32, all in the same order of additions: 64
 * products in ascending k, and then the sums of these chunks in ascending k. So the bits do not
 * depend on how many other results of the tile fail. */
#ifndef SGEMM_KERNELS_RECOMPUTE_ALONE_H
#define SGEMM_KERNELS_RECOMPUTE_ALONE_H

#include "error_check.h"

namespace {

/* Listed results, each by all threads of the block: a thread adds a chunk. */
template <class T>
__device__ __forceinline__ void recompute_listed_alone(const Fp16Product &q,
                                                       const FailedTile<T> &failed)
{
    constexpr int threads = T::BM;
    __shared__ float chunks[threads];
    const Origin tile = tile_computed<T>(q.p.C, failed.number);
    const Matrix &A = q.p.A, &B = q.p.B;
    const int count = q.failing[failed.in_batch], thread = threadIdx.x;
    UNROLL(1)
    for (int i = failed.block; i < count; i += failed.blocks) {
        const int position = q.position[int64_t{failed.in_batch} * max_failing + i];
        const int64_t row = tile.row + position / T::BN, col = tile.col + position % T::BN;
        float total = 0.0f;
        UNROLL(1)
        for (int64_t first = 0; first < A.cols; first += threads * k_chunk) {
            const int64_t own = first + thread * k_chunk, left = A.cols - own;
            const int depth = left < k_chunk ? clamped(left) : k_chunk;
            const float *a = address(A, row, own, failed.matrix);
            const float *b = address(B, own, col, failed.matrix);
            float sum = 0.0f;
            UNROLL(8)
            for (int k = 0; k < depth; ++k) {
                sum = multiply_add(*a, *b, sum);
                a += A.col_stride;
                b += B.row_stride;
            }
            chunks[thread] = sum;
            __syncthreads();
            if (thread == 0) {
                UNROLL(8)
                for (int chunk = 0; chunk < threads; ++chunk) {
                    if (first + chunk * k_chunk < A.cols) {
                        total += chunks[chunk];
                    }
                }
            }
            __syncthreads();
        }
        if (thread == 0) {
            store(q.p, results(q, row, col, failed.matrix), 0, 0, total);
        }
    }
}

/* The same order for the 8 x 8 results of each of THREADS threads. Their totals are in shared
 * memory, because both sums together do not fit in registers. */
template <int THREADS> struct InChunks {
    typedef float Totals[8][8][THREADS];
    static constexpr int unrolled = 1; // loops over results
    FallbackSums sum = {};
    Totals &totals;

    static __device__ __forceinline__ Totals &in_shared_memory()
    {
        __shared__ Totals totals;
        return totals;
    }
    __device__ __forceinline__ InChunks() : totals(in_shared_memory())
    {
        each([&](float &, float &total) { total = 0.0f; });
    }
    template <class What> __device__ __forceinline__ void each(const What &what)
    {
        UNROLL(8)
        for (int i = 0; i < 8; ++i) {
            UNROLL(8)
            for (int j = 0; j < 8; ++j) {
                what(sum[i][j], totals[i][j][threadIdx.x]);
            }
        }
    }
    __device__ __forceinline__ void add_chunk()
    {
        each([](float &sum, float &total) {
            total += sum;
            sum = 0.0f;
        });
    }
    /* After fallback_depth steps of K from `first` on. */
    __device__ __forceinline__ void end_depth(int64_t first)
    {
        if (first % k_chunk == k_chunk - fallback_depth) {
            add_chunk();
        }
    }
    __device__ __forceinline__ void finish()
    {
        add_chunk(); // the last one, or zeros
    }
    __device__ __forceinline__ float result(int i, int j) const
    {
        return totals[i][j][threadIdx.x];
    }
};

/* The marks of a tile: CheckedTile has the order of its threads' results. */
template <class T, class Rows> struct Marks {
    const uint64_t *of_tile;

    __device__ __forceinline__ bool operator()(int row, int col) const
    {
        typedef ResultBits<T> Bits;
        const int warp = row / T::WM * T::warps_across + col / T::WN;
        const int lane = Rows::lane_of_row(row % 8) + col % 8 / 2;
        const int i = row % T::WM / 8, j = col % T::WN / 8 * 2 + col % 2;
        return of_tile[warp * 32 + lane] >> (i * Bits::cols + j) & 1;
    }
};

template <class T, class Rows>
__global__ void __launch_bounds__(T::BM) recompute_alone(const Recomputed r)
{
    const Fp16Product &q = r.product;
    for_each_failed<T>(r, [&](const FailedTile<T> &failed) {
        if (q.failing[failed.in_batch] == falls_back) {
            const Marks<T, Rows> marks = {q.marks + int64_t{failed.in_batch} * T::threads};
            recompute_block<T, ELEMENT_FLOAT32, InChunks<T::BM>>(q, failed, marks);
        } else {
            recompute_listed_alone<T>(q, failed);
        }
    });
}

} // namespace

#endif
