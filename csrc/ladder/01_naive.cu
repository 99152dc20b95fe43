// idea      one thread for each element of C, computing one dot product.
// block     32 x 32 threads, one result each; threadIdx.x runs down a column of C.
// traffic   8 bytes of load requests per multiply-add: one element of A, one of B, nothing kept.
// bound by  uncoalesced loads: the 32 threads of a warp read 32 rows of A, from 32 memory sectors.
// next      coalesced: give the threads of a warp neighbouring columns instead.
#include "kernel.h"

namespace {

constexpr int BM = 32, BN = 32;
constexpr int threads = BM * BN;

__global__ void __launch_bounds__(threads) naive(const Sgemm p)
{
    const Origin tile = tile_origin(p.C, BM, BN);
    const int64_t row = tile.row + threadIdx.x;
    const int64_t col = tile.col + threadIdx.y;
    if (!inside(p.C, row, col)) {
        return;
    }
    float sum = 0.0f;
    UNROLL(32)
    for (int64_t k = 0; k < p.A.cols; ++k) {
        sum = multiply_add(at(p.A, row, k), at(p.B, k, col), sum);
    }
    store(p, results(p.C, row, col), 0, 0, sum);
}

constexpr KernelSpec spec = {"naive", {BM, BN, 1}, {1, 1}, {BM, BN}, 0, 0, 1, false, ""};

} // namespace

RUNG(naive, "one thread per element, down a column of C", "01_naive.cu", spec, {7, 5});
