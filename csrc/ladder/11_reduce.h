/* What is left of splitk when the division of K in 11_splitk.cu is understood: where the partial
 * results lie, and the second kernel, which adds them. */
#ifndef SGEMM_KERNELS_11_REDUCE_H
#define SGEMM_KERNELS_11_REDUCE_H

#include "kernel.h"

namespace {

/* A product whose K is divided. */
struct SplitProduct {
    Sgemm p;
    int splits;      // parts of K
    int adders;      // threads that add the partial results of a quad
    int64_t ld;      // of one part's results
    float *partials; // matrices of the shape of C, one after the other; NULL if C takes the sums
};

/* ------------------------------------------------------------------ adding the partial results */

constexpr int reduction_threads = 256;

/* Each quad of results is added by s.adders threads, which divide reduction_threads: each takes
 * every s.adders-th part, and the first adds what they have, always in the same order. */
__global__ void __launch_bounds__(reduction_threads) reduce(const SplitProduct s)
{
    __shared__ float4 sums[reduction_threads];
    const int side = reduction_threads / s.adders; // quads of this block
    const int x = threadIdx.x % side, y = threadIdx.x / side;
    const int64_t size = s.p.C.rows * s.ld, of_row = s.ld / 4;
    const int64_t number = static_cast<int64_t>(blockIdx.x) * side + x;
    int64_t row = number / of_row, col = (number - row * of_row) * 4;
    KEEP(row); // worked out before the parts are there
    KEEP(col);
    const bool there = row < s.p.C.rows;
    wait_for_kernel_before();

    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (there) {
        const float *from = s.partials + y * size + row * s.ld + col;
        UNROLL(4)
        for (int part = y; part < s.splits; part += s.adders) {
            const float4 more = *reinterpret_cast<const float4 *>(from);
            sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
            from += s.adders * size;
        }
    }
    if (s.adders > 1) {
        sums[threadIdx.x] = sum;
        __syncthreads();
    }
    if (!there || y > 0) {
        return;
    }
    for (int other = 1; other < s.adders; ++other) {
        const float4 more = sums[other * side + x];
        sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    const float of_quad[4] = {sum.x, sum.y, sum.z, sum.w};
    for (int i = 0; i < 4 && col + i < s.p.C.cols; ++i) {
        float *const c = address(s.p.C, row, col + i);
        *c = scaled(s.p, of_quad[i], s.p.beta == 0.0f ? 0.0f : *c);
    }
}

constexpr KernelSpec reduce_spec = {
    "reduce", {0, 0, 0}, {1, 4}, {reduction_threads, 1}, reduction_threads * sizeof(float4), 0,
    1,        true,      ""};

/* ------------------------------------------------------------------ on the host */

/* Launches a product with memory for partial results, by `launch`, and adds them. */
template <class LaunchProduct>
Status launch_and_reduce(SplitProduct s, const Launch *where, LaunchProduct launch)
{
    s.ld = (s.p.C.cols + 3) / 4 * 4;
    s.adders = s.splits <= 4 ? 1 : s.splits <= 16 ? 4 : s.splits <= 128 ? 8 : 32;
    void *memory;
    Status status = scratch_take(sizeof(float) * static_cast<size_t>(s.splits * s.p.C.rows * s.ld),
                                 where, &memory);
    if (status.code == STATUS_OUT_OF_MEMORY) {
        return status_error(STATUS_OUT_OF_MEMORY, "no room for %d parts of the result: %.400s",
                            s.splits, status.message);
    }
    if (status.code != STATUS_OK) {
        return status;
    }
    s.partials = static_cast<float *>(memory);
    status = launch(s);
    if (status.code == STATUS_OK) {
        const int64_t quads = s.p.C.rows * (s.ld / 4), side = reduction_threads / s.adders;
        status = launch_blocks(reduce, reduce_spec, (quads + side - 1) / side, s, where);
    }
    scratch_give(memory, where);
    return status;
}

} // namespace

#endif
