/* Elements of an operand as they are in memory: float32, float16 or bfloat16. */
#ifndef SGEMM_KERNELS_STORED_ELEMENT_H
#define SGEMM_KERNELS_STORED_ELEMENT_H

#include <string.h>

#include "kernel.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace {

__device__ __forceinline__ float float_from_fp16(uint16_t x)
{
#ifdef __CUDACC__
    return __half2float(__ushort_as_half(x));
#else
    return grid_float_of_half(x);
#endif
}

__device__ __forceinline__ float float_of_bits(unsigned bits)
{
#ifdef __CUDACC__
    return __uint_as_float(bits);
#else
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
#endif
}

template <ElementType ELEMENT> struct StoredElement {
    typedef uint16_t Stored;

    static __device__ __forceinline__ float value(uint16_t x)
    {
        return ELEMENT == ELEMENT_FLOAT16 ? float_from_fp16(x) : float_of_bits(unsigned{x} << 16);
    }
};

template <> struct StoredElement<ELEMENT_FLOAT32> {
    typedef float Stored;

    static __device__ __forceinline__ float value(float x)
    {
        return x;
    }
};

/* The address of element (row, col) of a matrix of a batch. */
template <ElementType ELEMENT>
__device__ __forceinline__ const typename StoredElement<ELEMENT>::Stored *
stored_address(const Matrix &X, int64_t row, int64_t col, unsigned matrix)
{
    return reinterpret_cast<const typename StoredElement<ELEMENT>::Stored *>(X.data) +
           matrix * X.batch_stride + row * X.row_stride + col * X.col_stride;
}

} // namespace

#endif
