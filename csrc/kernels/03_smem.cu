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
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const Origin tile = tile_origin(p.C, BM, BN);
    const int ty = threadIdx.y, tx = threadIdx.x;

    Cursor a = cursor_of_A(p.A, tile.row + ty, tx, BK);
    Cursor b = cursor_of_B(p.B, ty, tile.col + tx, BK);

    float sum = 0.0f;
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        const int depth = clamped(left);
        As[ty][tx] = a.take(depth);
        Bs[ty][tx] = b.take(depth);
        __syncthreads();
        for (int k = 0; k < BK; ++k) {
            sum += As[ty][k] * Bs[k][tx];
        }
        __syncthreads();
    }
    store(p, results(p.C, tile.row + ty, tile.col + tx), 0, 0, sum);
}

} // namespace

LAUNCHER(smem)
{
    return launch_tiles(smem, BM, BN, dim3(BN, BM), problem, where);
}

VARIANT(smem, "square tiles of A and B in shared memory", "03_smem.cu", {BM, BN, BK}, {1, 1},
        threads, (BM * BK + BK * BN) * sizeof(float), {7, 5});
