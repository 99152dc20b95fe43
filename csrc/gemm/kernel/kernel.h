/* Shared by all kernels: access to matrices, the multiply-add, the epilogue.
 *
 * The same source is compiled by nvcc (GPUs), hipcc (AMD GPUs, see ../base/cuda/hip.h), the host's
 * compiler (the CPU device, see ../emulator/grid.h), and once more to count memory accesses (see
 * ../emulator/access_trace/traced.h). */
#ifndef SGEMM_KERNELS_KERNEL_H
#define SGEMM_KERNELS_KERNEL_H

#include <math.h>

#include "launch.h"

/* The version of what custom kernels use of this header. docs/use/custom_kernels.md lists it. A
 * name that goes or changes raises the version. */
#define SGEMM_KERNEL_H_VERSION 1

/* A size with a default that `tune` and kernel(..., defines={"BM": 64}) can replace: they pass
 * -DSGEMM_TUNED_BM=0,64, whose second item counts. */
#define TUNABLE(name, otherwise) SGEMM_SECOND_OF(SGEMM_TUNED_##name, otherwise, )
#define SGEMM_SECOND_OF(...) SGEMM_SECOND(__VA_ARGS__)
#define SGEMM_SECOND(first, second, ...) second

/* Unrolls the loop that follows n times on a GPU. A loop whose counter indexes a register array
 * must be unrolled completely; otherwise the array moves to memory. */
#define PRAGMA(text) _Pragma(#text)
#ifdef __CUDACC__
#define UNROLL(n) PRAGMA(unroll n)
#else
#define UNROLL(n)
#endif

/* Always inlined. A trace shows its lines; of a __forceinline__ function it shows only the call. */
#define KERNEL_BODY static __device__ inline __attribute__((always_inline))

/* a * b + c, rounded once on GPUs and on processors with FMA. Kernels add and multiply floats only
 * here and in scaled(). nvcc fuses the expression, and schedules it better than calls of fmaf. */
KERNEL_BODY float multiply_add(float a, float b, float c)
{
#if !defined(__CUDACC__) && FUSES_MULTIPLY_ADD
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* Element (row, col) of a matrix of a batch: of this block's, unless the block computes several. */
static __device__ __forceinline__ float *address(const Matrix &X, int64_t row, int64_t col,
                                                 unsigned matrix = blockIdx.y)
{
    return X.data + matrix * X.batch_stride + row * X.row_stride + col * X.col_stride;
}

static __device__ __forceinline__ bool inside(const Matrix &X, int64_t row, int64_t col)
{
    return row < X.rows && col < X.cols;
}

static __device__ __forceinline__ float at(const Matrix &X, int64_t row, int64_t col)
{
    return *address(X, row, col);
}

static __device__ __forceinline__ int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

static __host__ __device__ __forceinline__ Matrix transposed(const Matrix &X)
{
    return {X.data, X.cols, X.rows, X.col_stride, X.row_stride, X.batch_stride};
}

static __device__ __forceinline__ int clamped(int64_t count)
{
    return count < INT32_MAX ? static_cast<int>(count) : INT32_MAX;
}

static __host__ __device__ __forceinline__ bool is_aligned(const float *from)
{
    return reinterpret_cast<uintptr_t>(from) % sizeof(float4) == 0;
}

static __device__ __forceinline__ void read4(float *to, const float *from)
{
    const float4 v = *reinterpret_cast<const float4 *>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

/* The first row and column of this block's tile of C. Blocks are numbered along the rows of
 * tiles, in one dimension, because the second dimension of a grid ends at 65,535. */
struct Origin {
    int64_t row, col;
};

static __device__ __forceinline__ Origin tile_origin(const Matrix &C, int BM, int BN)
{
    const unsigned tiles_in_row = static_cast<unsigned>((C.cols + BN - 1) / BN);
    return {static_cast<int64_t>(blockIdx.x / tiles_in_row) * BM,
            static_cast<int64_t>(blockIdx.x % tiles_in_row) * BN};
}

/* The block's dynamic shared memory as a T. A trace shows its arrays As and Bs by these names. */
template <class T> static __device__ __forceinline__ T &dynamic_shared()
{
#ifdef __CUDACC__
    extern __shared__ __align__(1024) unsigned char dynamic_shared_bytes[];
#endif
    T &shared = *reinterpret_cast<T *>(dynamic_shared_bytes);
#ifdef SGEMM_TRACED
    name_array("As", shared.As, sizeof shared.As);
    name_array("Bs", shared.Bs, sizeof shared.Bs);
#endif
    return shared;
}

/* alpha * sum + beta * c. The rounding is explicit: otherwise nvcc would fuse a different
 * product for float4 than for single floats. */
static __device__ __forceinline__ float scaled(const Sgemm &p, float sum, float c)
{
    const float product = p.alpha * sum;
#ifdef __CUDACC__
    return p.beta == 0.0f ? product : fmaf(p.beta, c, product);
#else
    return p.beta == 0.0f ? product : multiply_add(p.beta, c, product);
#endif
}

/* C(row, col) = alpha * sum + beta * C(row, col) if it is inside C. C is not read if beta is 0. */
static __device__ __forceinline__ void store(const Sgemm &p, int64_t row, int64_t col, float sum)
{
    if (inside(p.C, row, col)) {
        float *const c = address(p.C, row, col);
        *c = scaled(p, sum, p.beta == 0.0f ? 0.0f : *c);
    }
}

/* The same for C(row, col) to C(row, col + 3), with one load and one store if they are aligned. */
static __device__ __forceinline__ void store4(const Sgemm &p, int64_t row, int64_t col,
                                              const float *sum)
{
    float *const first = address(p.C, row, col);
    if (inside(p.C, row, col + 3) && is_aligned(first)) {
        float4 *const c = reinterpret_cast<float4 *>(first);
        const float4 old = p.beta == 0.0f ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *c;
        const float4 result = make_float4(scaled(p, sum[0], old.x), scaled(p, sum[1], old.y),
                                          scaled(p, sum[2], old.z), scaled(p, sum[3], old.w));
        *c = result;
    } else {
        for (int j = 0; j < 4; ++j) {
            store(p, row, col + j, sum[j]);
        }
    }
}

#endif
