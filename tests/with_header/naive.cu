// idea      one thread per element of C: it computes one dot product.
// block     32 x 32 threads, one result each; threadIdx.x runs down a column of C.
// traffic   8 bytes of load requests per multiply-add: one element of A and one of B; nothing is
//           reused.
// bound by  uncoalesced loads: the 32 threads of a warp read 32 rows of A, in 32 memory sectors.
// next      coalesced: give neighbouring threads neighbouring columns.
#include "kernel.h"

namespace {

constexpr int BM = 32, BN = 32;

__global__ void __launch_bounds__(BM *BN) naive(const Sgemm p)
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
    store(p, row, col, sum);
}

constexpr KernelSpec spec = {
    .symbol = "naive", .block_tile = {BM, BN, 1}, .thread_tile = {1, 1}, .threads = {BM, BN}};

} // namespace

RUNG(naive, "one thread per element, down a column of C", "naive.cu", spec, {7, 5});
