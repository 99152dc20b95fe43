// idea      a block loads each tile of A and B once into shared memory and reads it from there.
// block     32 x 32 threads, one result each; tiles of 32 x 32.
// traffic   8 / 32 bytes from global memory per multiply-add, and 8 from shared memory.
// bound by  shared-memory loads: still two for each multiply-add.
// next      tile1d: let a thread compute several results, so that a value serves more than once.
#include "kernel.h"

namespace {

constexpr int BM = 32, BN = 32, BK = 32;
constexpr int threads = BM * BN;
static_assert(BM == BK && BN == BK, "each thread loads one element of either tile");

__global__ void __launch_bounds__(threads) smem(const Sgemm p)
{
    __shared__ float As[BM][BK]; // (BM, BK)
    __shared__ float Bs[BK][BN]; // (BK, BN)

    const Origin tile = tile_origin(p.C, BM, BN);
    const int ty = threadIdx.y, tx = threadIdx.x;
    const int64_t row = tile.row + ty, col = tile.col + tx;

    // This thread's element of each tile. Beyond the last row of A or column of B it is the last one
    // again, which is part of no result: so whole tiles need no guard.
    const int64_t a_row = row < p.A.rows ? row : p.A.rows - 1;
    const int64_t b_col = col < p.B.cols ? col : p.B.cols - 1;
    const float *a_from = address(p.A, a_row, tx), *b_from = address(p.B, ty, b_col);

    float sum = 0.0f;
    int64_t left = p.A.cols;
    for (; left >= BK; left -= BK) {
        // The loads begin before the barrier: only the stores have to wait for the last reader.
        const float a = *a_from, b = *b_from;
        a_from += BK * p.A.col_stride;
        b_from += BK * p.B.row_stride;
        __syncthreads();
        As[ty][tx] = a;
        Bs[ty][tx] = b;
        __syncthreads();
        for (int k = 0; k < BK; ++k) {
            sum = multiply_add(As[ty][k], Bs[k][tx], sum);
        }
    }
    if (left > 0) {
        // The guarded edge: what lies beyond the end of K is not read, and zeros add nothing.
        const float a = tx < left ? *a_from : 0.0f, b = ty < left ? *b_from : 0.0f;
        __syncthreads();
        As[ty][tx] = a;
        Bs[ty][tx] = b;
        __syncthreads();
        for (int k = 0; k < BK; ++k) {
            sum = multiply_add(As[ty][k], Bs[k][tx], sum);
        }
    }
    store(p, results(p.C, row, col), 0, 0, sum);
}

constexpr int shared_bytes = (BM * BK + BK * BN) * sizeof(float);
constexpr KernelSpec spec = {"smem", {BM, BN, BK}, {1, 1}, {BN, BM}, shared_bytes, 0, 1, false, ""};

} // namespace

RUNG(smem, "square tiles of A and B in shared memory", "03_smem.cu", spec, {7, 5});
