/* Four neighbouring floats at a time: what is left of vec4 when the float4 load and the transposed
 * store of 06_vec4.cu are understood.
 *
 * A tile of A is some rows of A, a tile of B some columns of B: *lines*, each a few steps of K
 * deep. Shared memory keeps both as [depth][line], so that four neighbouring lines at one depth
 * are one 16-byte load. In global memory four neighbours run along the depth (row-major A,
 * transposed B) or across the lines (transposed A, row-major B). */
#ifndef SGEMM_KERNELS_06_QUAD_H
#define SGEMM_KERNELS_06_QUAD_H

#include "kernel.h"

/* Added to each row of a shared tile: it moves a quad that is stored along the depth, element by
 * element, to banks of its own. A multiple of 4 keeps the rows aligned. */
constexpr int quad_padding = 4;

static __host__ __device__ __forceinline__ bool is_aligned(const float *from)
{
    return reinterpret_cast<uintptr_t>(from) % sizeof(float4) == 0;
}

static __host__ __device__ __forceinline__ Matrix transposed(const Matrix &X)
{
    return {X.data, X.cols, X.rows, X.col_stride, X.row_stride};
}

/* Four neighbouring floats, by one load. */
static __device__ __forceinline__ void read_quad(float *to, const float *from)
{
    const float4 quad = *reinterpret_cast<const float4 *>(from);
    to[0] = quad.x;
    to[1] = quad.y;
    to[2] = quad.z;
    to[3] = quad.w;
}

/* The epilogue for four neighbours in a row of C. */
static __device__ __forceinline__ void store_quad(const Sgemm &p, const Results &C, int row,
                                                  int col, const float *sum)
{
    float *const first = C.first + row * C.ld + col;
    if (row < C.rows && col + 3 < C.cols && is_aligned(first)) {
        float4 *const c = reinterpret_cast<float4 *>(first);
        const float4 old = p.beta == 0.0f ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *c;
        // Named, since the counting build does not see what a call writes to memory by itself.
        const float4 fresh = make_float4(scaled(p, sum[0], old.x), scaled(p, sum[1], old.y),
                                         scaled(p, sum[2], old.z), scaled(p, sum[3], old.w));
        *c = fresh;
        return;
    }
    for (int j = 0; j < 4; ++j) {
        store(p, C, row, col + j, sum[j]);
    }
}

#endif
