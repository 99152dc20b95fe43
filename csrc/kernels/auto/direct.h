/* Products that are over in less time than it takes to fill a tile: nothing is shared, nobody waits for
 * another, and the code is short, which comes from memory as well. Eight threads compute a result, each
 * with every eighth step of K, four of which are on their way at a time. */
#ifndef SGEMM_KERNELS_AUTO_DIRECT_H
#define SGEMM_KERNELS_AUTO_DIRECT_H

#include "../../core/plan.h"
#include "../kernel.h"

namespace {

constexpr int direct_threads = 128;
constexpr int sharers = 8;                      // of a result: neighbours in a warp
constexpr int at_once = DIRECT_DEPTH / sharers; // steps of K of each

__global__ void __launch_bounds__(direct_threads) direct(const Sgemm p)
{
    const unsigned number = blockIdx.x * (direct_threads / sharers) + threadIdx.x / sharers;
    const unsigned cols = static_cast<unsigned>(p.C.cols);
    const int64_t row = number / cols, col = number % cols;
    const bool there = row < p.C.rows;
    const int K = there ? static_cast<int>(p.A.cols) : 0, first = threadIdx.x % sharers;
    float sum = 0.0f;
    UNROLL(1)
    for (int k = first; k < K; k += at_once * sharers) {
        float a[at_once], b[at_once];
        UNROLL(at_once)
        for (int i = 0; i < at_once; ++i) {
            const bool inside_K = k + i * sharers < K;
            a[i] = inside_K ? at(p.A, row, k + i * sharers) : 0.0f;
            b[i] = inside_K ? at(p.B, k + i * sharers, col) : 0.0f;
        }
        UNROLL(at_once)
        for (int i = 0; i < at_once; ++i) {
            sum = multiply_add(a[i], b[i], sum);
        }
    }
    UNROLL(3)
    for (int other = sharers / 2; other > 0; other /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, other);
    }
    if (there && first == 0) {
        store(p, results(p.C, row, col), 0, 0, sum);
    }
}

constexpr KernelSpec direct_spec = {
    "direct", {1, direct_threads / sharers, 1}, {1, 1}, {direct_threads, 1}, 0, 0, 1, false, ""};

inline Status launch_direct(const Sgemm *problem, const Launch *where)
{
    constexpr int results_of_block = direct_threads / sharers;
    const int64_t count = problem->C.rows * problem->C.cols;
    return launch_blocks(direct, direct_spec, (count + results_of_block - 1) / results_of_block,
                         *problem, where);
}

} // namespace

#endif
