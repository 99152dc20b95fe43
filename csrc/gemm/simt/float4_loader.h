/* Loads four floats at a time, in any layout: for vec4, prefetch and warptile. */
#ifndef SGEMM_KERNELS_FLOAT4_LOADER_H
#define SGEMM_KERNELS_FLOAT4_LOADER_H

#include "../kernel/kernel.h"

/* Added to each row of a shared tile, so that four floats stored one below the other are in
 * different banks. A multiple of 4 keeps the rows aligned. */
constexpr int padding = 4;

/* One thread's float4 of each tile of A. For B pass transposed(B): its rows are the columns of
 * B. Four neighbours in memory are along K (row-major A, transposed B) or in four rows
 * (transposed A, row-major B). A shared tile is always [k][row], so that the main loop reads
 * four rows at one k as one float4. */
struct Float4Loader {
    const float *from; // this thread's elements of the next tile
    int64_t step;      // from one tile to the next
    int row, k;        // of the first element in the tile
    bool k_major;
    bool aligned;
    int rows_inside; // 0 to 4 of the float4; 4 if it is along K and its row is inside

    /* Loads the float4 of the next tile: 0 in rows outside, and from step `depth` of K on. */
    __device__ __forceinline__ float4 load(int depth)
    {
        const int steps_inside = k_major ? depth - k : k < depth ? 4 : 0;
        const int count = steps_inside < rows_inside ? steps_inside : rows_inside;
        const float *const first = from;
        from += step;
        if (count >= 4 && aligned) {
            return *reinterpret_cast<const float4 *>(first);
        }
        return make_float4(count > 0 ? first[0] : 0.0f, count > 1 ? first[1] : 0.0f,
                           count > 2 ? first[2] : 0.0f, count > 3 ? first[3] : 0.0f);
    }

    /* Stores it in a shared tile. Neighbours along K go one below the other: transposed. */
    template <int BK, int WIDTH>
    __device__ __forceinline__ void store(float (&tile)[BK][WIDTH], float4 values) const
    {
        if (k_major) {
            tile[k + 0][row] = values.x;
            tile[k + 1][row] = values.y;
            tile[k + 2][row] = values.z;
            tile[k + 3][row] = values.w;
        } else {
            *reinterpret_cast<float4 *>(&tile[k][row]) = values;
        }
    }
};

/* Loads float4 `number` of each ROWS x BK tile of X, from first_row on. */
template <int ROWS, int BK>
static __device__ __forceinline__ Float4Loader float4_loader(const Matrix &X, int64_t first_row,
                                                             int number)
{
    static_assert(ROWS % 4 == 0 && BK % 4 == 0,
                  "a tile consists of whole float4 in both directions");
    Float4Loader loader;
    loader.k_major = X.col_stride == 1;
    loader.row = loader.k_major ? number / (BK / 4) : number % (ROWS / 4) * 4;
    loader.k = loader.k_major ? number % (BK / 4) * 4 : number / (ROWS / 4);
    loader.from = address(X, first_row + loader.row, loader.k);
    loader.step = BK * X.col_stride;
    loader.aligned = is_aligned(loader.from); // as in all tiles: BK is a multiple of 4
    const int rows_left = clamped(X.rows - first_row) - loader.row;
    loader.rows_inside = rows_left <= 0 ? 0 : loader.k_major || rows_left >= 4 ? 4 : rows_left;
    return loader;
}

#endif
