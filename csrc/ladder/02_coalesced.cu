// idea      neighbouring threads compute neighbouring columns: a warp reads whole memory sectors.
// block     32 x 32 threads, one result each; threadIdx.x runs along a row of C.
// traffic   8 bytes of load requests per multiply-add: one element of A, one of B, nothing kept.
// bound by  the load pipeline: two loads for each multiply-add, though the cache serves most.
// next      smem: load a tile once for the whole block, and read it many times from shared memory.
#include "kernel.h"

namespace {

constexpr int BM = 32, BN = 32;
constexpr int threads = BM * BN;

__global__ void __launch_bounds__(threads) coalesced(const Sgemm p)
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
    store(p, results(p.C, row, col), 0, 0, sum);
}

constexpr KernelSpec spec = {"coalesced", {BM, BN, 1}, {1, 1}, {BN, BM}, 0, 0, 1, false, ""};

} // namespace

RUNG(coalesced, "one thread per element, along a row of C", "02_coalesced.cu", spec, {7, 5});
