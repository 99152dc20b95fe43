// idea      a block loads each tile of A and B once into shared memory and reuses it from there.
// block     32 x 32 threads, one result each; tiles of 32 x 32.
// traffic   8 / 32 bytes from global memory per multiply-add, and 8 from shared memory.
// bound by  shared-memory loads: still two per multiply-add.
// next      tile1d: several results per thread, so that a loaded value is used more than once.
#include "kernel.h"

namespace {

constexpr int BM = 32, BN = 32, BK = 32;
static_assert(BM == BK && BN == BK, "each thread loads one element of each tile");

__global__ void __launch_bounds__(BM *BN) smem(const Sgemm p)
{
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const Origin tile = tile_origin(p.C, BM, BN);
    const int ty = threadIdx.y, tx = threadIdx.x;
    const int64_t row = tile.row + ty;
    const int64_t col = tile.col + tx;
    // This thread's element of each tile. Beyond the last row of A or column of B it loads the last
    // one again, which is part of no result.
    const float *a = address(p.A, at_most(row, p.A.rows - 1), tx);
    const float *b = address(p.B, ty, at_most(col, p.B.cols - 1));

    float sum = 0.0f;
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        const int depth = clamped(left);
        const float a_value = tx < depth ? *a : 0.0f, b_value = ty < depth ? *b : 0.0f;
        __syncthreads();
        As[ty][tx] = a_value;
        Bs[ty][tx] = b_value;
        a += BK * p.A.col_stride;
        b += BK * p.B.row_stride;
        __syncthreads(); // the tiles are complete
        UNROLL(BK)
        for (int k = 0; k < BK; ++k) {
            sum = multiply_add(As[ty][k], Bs[k][tx], sum);
        }
    }
    store(p, row, col, sum);
}

constexpr KernelSpec spec = {.symbol = "smem",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {1, 1},
                             .threads = {BN, BM},
                             .static_bytes = (BM * BK + BK * BN) * sizeof(float)};

} // namespace

RUNG(smem, "square tiles of A and B in shared memory", "smem.cu", spec, {7, 5});
