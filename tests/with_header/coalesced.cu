// idea      neighbouring threads compute neighbouring columns: a warp reads whole memory sectors.
// block     32 x 32 threads, one result each; threadIdx.x runs along a row of C.
// traffic   8 bytes of load requests per multiply-add: one element of A and one of B; nothing is
//           reused.
// bound by  load instructions: two per multiply-add, although most hit the cache.
// next      smem: load each tile once per block and reuse it from shared memory.
#include "kernel.h"

namespace {

constexpr int BM = 32, BN = 32;

__global__ void __launch_bounds__(BM *BN) coalesced(const Sgemm p)
{
    const Origin tile = tile_origin(p.C, BM, BN);
    const int64_t row = tile.row + threadIdx.y;
    const int64_t col = tile.col + threadIdx.x;
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
    .symbol = "coalesced", .block_tile = {BM, BN, 1}, .thread_tile = {1, 1}, .threads = {BN, BM}};

} // namespace

RUNG(coalesced, "one thread per element, along a row of C", "coalesced.cu", spec, {7, 5});
