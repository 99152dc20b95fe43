// One mma.sync for each 16 x 8 results, to compare a GPU's tensor cores with the model
// (sgemm_kernels/proving): C += A @ B with K = 16, after A and B are rounded to fp16.
//
// Why `mma` is not enough for that: its fp16 pairs are in the upper part of fp16's range, its sums
// begin at 0, and it recomputes the small sums, which show most of the arithmetic, in float32.
#include "kernel/ptx.h"

#ifndef SGEMM_TRACED
namespace {

constexpr int rows = 16, cols = 8, depth = 16;

__global__ void __launch_bounds__(32) mma_step(const Sgemm p)
{
    const Origin tile = tile_origin(p.C, rows, cols);
    const int line = threadIdx.x / 4, pair = threadIdx.x % 4 * 2;
    unsigned a[4], b[2];
    UNROLL(4)
    for (int i = 0; i < 4; ++i) {
        const int64_t row = tile.row + line + i % 2 * 8;
        const int k = pair + i / 2 * 8;
        a[i] = fp16_pair(at(p.A, row, k), at(p.A, row, k + 1));
    }
    UNROLL(2)
    for (int i = 0; i < 2; ++i) {
        const int k = pair + i * 8;
        b[i] = fp16_pair(at(p.B, k, tile.col + line), at(p.B, k + 1, tile.col + line));
    }
    float sum[4];
    UNROLL(4)
    for (int i = 0; i < 4; ++i) {
        sum[i] = at(p.C, tile.row + line + i / 2 * 8, tile.col + pair + i % 2);
    }
    mma_m16n8k16(sum, a, b);
    UNROLL(4)
    for (int i = 0; i < 4; ++i) {
        *address(p.C, tile.row + line + i / 2 * 8, tile.col + pair + i % 2) = sum[i];
    }
}

constexpr KernelSpec spec = {.symbol = "mma_step",
                             .block_tile = {rows, cols, depth},
                             .thread_tile = {2, 2},
                             .threads = {32, 1}};

} // namespace

LAUNCHER(mma_step)
{
    if (problem->A.cols != depth || problem->C.rows % rows != 0 || problem->C.cols % cols != 0 ||
        problem->alpha != 1.0f || problem->beta != 1.0f) {
        return status_error(STATUS_INVALID,
                            "mma_step computes A @ B + C with K = %d, for a C of "
                            "whole tiles of %d x %d",
                            depth, rows, cols);
    }
    return launch_tiles(mma_step, spec, problem, where);
}

VARIANT(mma_step, "one product of tensor cores for each tile", nullptr, spec, {8, 0});
#endif
