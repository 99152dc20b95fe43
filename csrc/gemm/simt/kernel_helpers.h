/* Helpers of the kernels of simt, in addition to those of gemm/kernel: integer division, and stores
 * relative to a thread's first result. */
#ifndef SGEMM_GEMM_KERNEL_HELPERS_H
#define SGEMM_GEMM_KERNEL_HELPERS_H

#include "../kernel/ptx.h"

/* Computes the value here. Otherwise the compiler moves the computation past the branch that
 * follows, and each result gets its own branch. */
static __device__ __forceinline__ void compute_here(float &value)
{
#ifdef __CUDACC__
    asm volatile("" : "+f"(value));
#else
    (void)value;
#endif
}

template <class T> struct Division {
    T quotient, remainder;
};

/* Divides non-negative integers. A 32-bit integer division takes about a hundred cycles, a 64-bit
 * one several hundred. Division in floats takes half as long and is exact below 2^20:
 * (number + 1/2) / by is at least 1/2 / by away from an integer, and the error is below 1/5 / by.
 * Compute capability 9.0 only: on some others the compiler would spill registers. */
template <class T> static __device__ __forceinline__ Division<T> divided(T number, T by)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
    if ((number | by) < T{1} << 20) {
        const auto floats = [](T value) { return __uint2float_rn(static_cast<unsigned>(value)); };
        float one_by;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(one_by) : "f"(floats(by)));
        const T quotient = static_cast<T>(__float2uint_rz((floats(number) + 0.5f) * one_by));
        return {quotient, number - quotient * by};
    }
#endif
    return {number / by, number % by};
}

/* The part of C from one element to the last row and column. */
struct Results {
    float *first;
    int rows, cols; /* of this part, up to the edges of C */
    int64_t ld;
};

static __device__ __forceinline__ Results results(const Matrix &C, int64_t row, int64_t col)
{
    return {address(C, row, col), clamped(C.rows - row), clamped(C.cols - col), C.row_stride};
}

static __device__ __forceinline__ void store(const Sgemm &p, const Results &C, int row, int col,
                                             float sum)
{
    if (row < C.rows && col < C.cols) {
        float *const c = C.first + row * C.ld + col;
        *c = scaled(p, sum, p.beta == 0.0f ? 0.0f : *c);
    }
}

#endif
