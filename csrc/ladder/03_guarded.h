/* What the rungs after smem load their tiles with, element by element: the guarded load of
 * 03_smem.cu as a tile loader, for threads that load several elements of a tile. */
#ifndef SGEMM_KERNELS_03_GUARDED_H
#define SGEMM_KERNELS_03_GUARDED_H

#include "kernel.h"

/* One element of each of an operand's tiles, from one tile to the next along K. */
struct ElementLoader {
    const float *here;
    int64_t step; /* to the next tile */
    int k;        /* within the tile; INT32_MAX for an element beyond the edge of the matrix */

    /* The element, or 0 beyond the edges, where it adds nothing to a product; then goes on to
     * the next tile. `depth` is what is left of K from this tile's beginning on. */
    __device__ __forceinline__ float load(int depth)
    {
        const float value = k < depth ? *here : 0.0f;
        here += step;
        return value;
    }
};

static __device__ __forceinline__ ElementLoader element_of_A(const Matrix &A, int64_t row, int k,
                                                             int tile_depth)
{
    return {address(A, row, k), tile_depth * A.col_stride, row < A.rows ? k : INT32_MAX};
}

static __device__ __forceinline__ ElementLoader element_of_B(const Matrix &B, int k, int64_t col,
                                                             int tile_depth)
{
    return {address(B, k, col), tile_depth * B.row_stride, col < B.cols ? k : INT32_MAX};
}

#endif
