/* A product whose results are computed in parts of K, and a second kernel that adds the parts. */
#ifndef SGEMM_KERNELS_SPLIT_H
#define SGEMM_KERNELS_SPLIT_H

#include "kernel.h"

namespace {

/* A product whose tiles of C are computed in parts. */
struct Split {
    Sgemm p;
    int splits;
    int adders; // threads that add the parts of a quad
    int width;  // columns of gemv's blocks where B lies by rows
    int64_t ld; // of one part's results
    float
        *parts; // splits matrices of the shape of C, one after the other; NULL if C takes the sums
};

/* ------------------------------------------------------------------ adding the parts */

/* Of the kernel that computes parts, when all that is left is to store them. */
__device__ __forceinline__ void let_adding_begin()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Until all parts are stored. */
__device__ __forceinline__ void wait_for_parts()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

constexpr int adding_threads = 256;

/* Each quad of results is added by s.adders threads, which divide adding_threads: each takes every
 * s.adders-th part, and the first adds what they have, always in the same order. */
__global__ void __launch_bounds__(adding_threads) add_parts(const Split s)
{
    __shared__ float4 sums[adding_threads];
    const int side = adding_threads / s.adders; // quads of this block
    const int x = threadIdx.x % side, y = threadIdx.x / side;
    const int64_t quads = s.ld / 4, size = s.p.C.rows * s.ld;
    const int64_t quad = static_cast<int64_t>(blockIdx.x) * side + x;
    const bool there = quad < s.p.C.rows * quads;
    wait_for_parts();

    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (there) {
        const float *from = s.parts + y * size + 4 * quad;
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
    const int64_t row = quad / quads, col = quad % quads * 4;
    const float of_quad[4] = {sum.x, sum.y, sum.z, sum.w};
    for (int i = 0; i < 4 && col + i < s.p.C.cols; ++i) {
        float *const c = place(s.p.C, row, col + i);
        *c = scaled(s.p, of_quad[i], s.p.beta == 0.0f ? 0.0f : *c);
    }
}

/* Launches a kernel whose blocks come in while those of the last one on the stream leave; it waits
 * for their results itself. Machine code older than 9.0 does not, and begins after them. */
template <class Problem>
Status launch_after(void (*kernel)(Problem), int64_t blocks, dim3 threads, const Problem &problem,
                    const Launch *where)
{
#ifdef __CUDACC__
    cudaFuncAttributes code;
    if (blocks <= INT32_MAX && cudaFuncGetAttributes(&code, kernel) == cudaSuccess &&
        code.ptxVersion >= 90) {
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(static_cast<unsigned>(blocks));
        config.blockDim = threads;
        config.stream = static_cast<cudaStream_t>(where->stream);
        config.attrs = &early;
        config.numAttrs = 1;
        const cudaError_t error = cudaLaunchKernelEx(&config, kernel, problem);
        return error == cudaSuccess ? status_ok() : not_launched(error);
    }
#endif
    return launch_blocks(kernel, blocks, threads, 0, problem, where);
}

Status launch_adding(Split s, const Launch *where)
{
    s.adders = s.splits <= 4 ? 1 : s.splits <= 16 ? 4 : s.splits <= 128 ? 8 : 32;
    const int64_t quads = s.p.C.rows * s.ld / 4, side = adding_threads / s.adders;
    return launch_after(add_parts, (quads + side - 1) / side, adding_threads, s, where);
}

Status take_parts(Split *s, const Launch *where)
{
    void *memory;
    const Status status = scratch_take(
        sizeof(float) * static_cast<size_t>(s->splits * s->p.C.rows * s->ld), where, &memory);
    s->parts = static_cast<float *>(memory);
    return status.code != STATUS_OUT_OF_MEMORY
               ? status
               : status_error(STATUS_OUT_OF_MEMORY, "no room for %d parts of the result: %.400s",
                              s->splits, status.message);
}

} // namespace

#endif
