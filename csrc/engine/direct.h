/* Small products without tiles: no thread waits for another, and there is little code to fetch. A
 * result is shared by 1, 8 or 32 neighbouring threads. Each of n sharers takes every n-th step of K
 * and loads four at a time. */
#ifndef SGEMM_ENGINE_DIRECT_H
#define SGEMM_ENGINE_DIRECT_H

#include "kernel_helpers.h"
#include "plan.h"

namespace {

constexpr int direct_threads = 128;

template <int SHARERS> __global__ void __launch_bounds__(direct_threads) direct(const Sgemm p)
{
    constexpr int in_flight = DIRECT_IN_FLIGHT;
    const unsigned number = blockIdx.x * (direct_threads / SHARERS) + threadIdx.x / SHARERS;
    const unsigned cols = static_cast<unsigned>(p.C.cols);
    const int64_t row = number / cols, col = number % cols;
    const bool there = row < p.C.rows;
    const int K = there ? static_cast<int>(p.A.cols) : 0, first = threadIdx.x % SHARERS;
    float sum = 0.0f;
    UNROLL(1)
    for (int k = first; k < K; k += in_flight * SHARERS) {
        float a[in_flight], b[in_flight];
        UNROLL(in_flight)
        for (int i = 0; i < in_flight; ++i) {
            const bool inside_K = k + i * SHARERS < K;
            a[i] = inside_K ? at(p.A, row, k + i * SHARERS) : 0.0f;
            b[i] = inside_K ? at(p.B, k + i * SHARERS, col) : 0.0f;
        }
        UNROLL(in_flight)
        for (int i = 0; i < in_flight; ++i) {
            sum = multiply_add(a[i], b[i], sum);
        }
    }
    UNROLL(5)
    for (int other = SHARERS / 2; other > 0; other /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, other);
    }
    if (there && first == 0) {
        store(p, results(p.C, row, col), 0, 0, sum);
    }
}

template <int SHARERS> Status launch_direct_of(const Sgemm *problem, const Launch *where)
{
    constexpr int results_of_block = direct_threads / SHARERS;
    KernelSpec spec = {};
    spec.symbol = "direct";
    spec.block_tile[0] = spec.block_tile[2] = 1;
    spec.block_tile[1] = results_of_block;
    spec.thread_tile[0] = spec.thread_tile[1] = 1;
    spec.threads[0] = direct_threads;
    spec.threads[1] = 1;
    spec.cluster = 1;
    const int64_t count = problem->C.rows * problem->C.cols;
    return launch_blocks(direct<SHARERS>, spec, (count + results_of_block - 1) / results_of_block,
                         *problem, where, problem->count);
}

inline Status launch_direct(const Sgemm *problem, const Launch *where)
{
    const int sharers = DIRECT_SHARERS(problem->C.rows * problem->C.cols, problem->A.cols);
    const auto launch = sharers == 32  ? launch_direct_of<32>
                        : sharers == 8 ? launch_direct_of<8>
                                       : launch_direct_of<1>;
    return launch(problem, where);
}

} // namespace

#endif
