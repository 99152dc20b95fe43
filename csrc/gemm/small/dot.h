/* Small products without tiles, and batches of products with a vector: no thread waits for another,
 * and there is little code to fetch. A result is shared by 1, 8 or 32 neighbouring threads. Each of
 * n sharers takes every n-th step of K and loads several at a time. */
#ifndef SGEMM_GEMM_DOT_H
#define SGEMM_GEMM_DOT_H

#include "../../base/addend.h"
#include "../plan/plan.h"
#include "../simt/kernel_helpers.h"

namespace {

struct Dot {
    Sgemm p;
    Matrix addend; // what beta multiplies: C itself, or another matrix
};

/* BY_LINES: A and B are contiguous along K, so addresses differ by constants. */
template <int SHARERS, bool BY_LINES>
__global__ void __launch_bounds__(DOT_THREADS) dot(const Dot q)
{
    const Sgemm &p = q.p;
    constexpr int in_flight = DOT_IN_FLIGHT(BY_LINES), round = in_flight * SHARERS;
    const unsigned number = blockIdx.x * (DOT_THREADS / SHARERS) + threadIdx.x / SHARERS;
    const unsigned cols = static_cast<unsigned>(p.C.cols);
    const int64_t row = number / cols, col = number % cols;
    const bool there = row < p.C.rows;
    const int K = there ? static_cast<int>(p.A.cols) : 0, first = threadIdx.x % SHARERS;
    const float *a = first < K ? address(p.A, row, first) : nullptr;
    const float *b = first < K ? address(p.B, first, col) : nullptr;
    const int64_t a_step = BY_LINES ? SHARERS : SHARERS * p.A.col_stride;
    const int64_t b_step = BY_LINES ? SHARERS : SHARERS * p.B.row_stride;
    float sum = 0.0f, of_a[in_flight], of_b[in_flight];
    int left = K - first;
    UNROLL(1)
    for (; left > round - SHARERS; left -= round) {
        UNROLL(in_flight)
        for (int i = 0; i < in_flight; ++i) {
            of_a[i] = a[i * a_step];
            of_b[i] = b[i * b_step];
        }
        UNROLL(in_flight)
        for (int i = 0; i < in_flight; ++i) {
            sum = multiply_add(of_a[i], of_b[i], sum);
        }
        a += in_flight * a_step;
        b += in_flight * b_step;
    }
    UNROLL(in_flight)
    for (int i = 0; i < in_flight - 1; ++i) {
        const bool inside_K = i * SHARERS < left;
        of_a[i] = inside_K ? a[i * a_step] : 0.0f;
        of_b[i] = inside_K ? b[i * b_step] : 0.0f;
    }
    UNROLL(in_flight)
    for (int i = 0; i < in_flight - 1; ++i) {
        sum = multiply_add(of_a[i], of_b[i], sum);
    }
    UNROLL(5)
    for (int other = SHARERS / 2; other > 0; other /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, other);
    }
    if (there && first == 0) {
        const float old = p.beta == 0.0f ? 0.0f : *address(q.addend, row, col);
        *address(p.C, row, col) = scaled(p, sum, old);
    }
}

template <int SHARERS, bool BY_LINES>
Status launch_dot_of(const Sgemm *problem, const Launch *where)
{
    constexpr int results_of_block = DOT_THREADS / SHARERS;
    KernelSpec spec = {};
    spec.symbol = "dot";
    spec.block_tile[0] = spec.block_tile[2] = 1;
    spec.block_tile[1] = results_of_block;
    spec.thread_tile[0] = spec.thread_tile[1] = 1;
    spec.threads[0] = DOT_THREADS;
    spec.threads[1] = 1;
    spec.cluster = 1;
    const int64_t count = problem->C.rows * problem->C.cols;
    const Dot q = {*problem, addend_or(where, &problem->C)};
    return launch_blocks(dot<SHARERS, BY_LINES>, spec,
                         (count + results_of_block - 1) / results_of_block, q, where,
                         problem->count);
}

inline Status launch_dot(const Sgemm *problem, const Launch *where)
{
    const bool contiguous = problem->A.col_stride == 1 && problem->B.row_stride == 1;
    const auto [sharers, by_lines] = dot_plan(problem->C.rows * problem->C.cols, problem->A.cols,
                                              problem->count > 1, contiguous);
    const auto launch =
        sharers == 32  ? (by_lines ? launch_dot_of<32, true> : launch_dot_of<32, false>)
        : sharers == 8 ? (by_lines ? launch_dot_of<8, true> : launch_dot_of<8, false>)
                       : launch_dot_of<1, false>;
    return launch(problem, where);
}

} // namespace

#endif
