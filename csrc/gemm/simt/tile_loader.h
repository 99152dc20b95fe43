/* Copies the tiles of an operand to shared memory. */
#ifndef SGEMM_GEMM_TILE_LOADER_H
#define SGEMM_GEMM_TILE_LOADER_H

#include "copy_async.h"

/* Greatest common divisor. */
static constexpr int common(int threads, int neighbours)
{
    return neighbours == 0 ? threads : common(neighbours, threads % neighbours);
}

/* Loads the tiles of one operand: LINES rows of A (or columns of B, here called rows too) by DEPTH
 * steps of K. Shared memory stores a tile as [k][row], with LD floats from one k to the next.
 *
 * K_MAJOR: each float is copied to its transposed place. A warp reads 32 bytes of each of four
 * rows. LD is 4 or 20 above a multiple of 32, so the warp writes to 32 different banks. DEEP = 16
 * reads 64 bytes of each of two rows, with two-way bank conflicts. Otherwise, threads copy float4s,
 * or single floats if some float4s are not aligned. Rows outside the operand become zeros and are
 * not read. */
template <int LINES, int DEPTH, int LD, int THREADS, int DEEP, bool K_MAJOR> struct TileLoader {
    static constexpr int float4s = LINES / 4;
    static constexpr int side = common(THREADS, float4s);  // float4s copied side by side
    static constexpr int rows = THREADS / side;            // steps of K copied at a time
    static constexpr int singles = common(THREADS, LINES); // floats copied side by side
    static constexpr int single_rows = THREADS / singles;
    static constexpr int deep = DEEP;            // consecutive floats of a row copied at a time
    static constexpr int lines = THREADS / deep; // rows copied at a time
    static constexpr int fetched = 16 * deep;    // bytes that the L2 cache prefetches
    static_assert(DEPTH % rows == 0 && float4s % side == 0 && DEPTH % deep == 0 &&
                      LINES % lines == 0 && DEPTH % single_rows == 0 && LINES % singles == 0,
                  "all threads load equally much");

    const float *here;
    int64_t depth_stride, line_stride;
    int first;  // offset of this thread's first element in a shared tile
    int k;      // step of K of that element
    int count;  // rows from this thread's first one to the operand's last
    bool whole; // MN-major: float4s are aligned, and none crosses the operand's last row

    __device__ __forceinline__ TileLoader(const Matrix &X, int64_t first_line, int thread)
        : depth_stride(X.col_stride), line_stride(X.row_stride)
    {
        const int left = clamped(X.rows - first_line);
        whole = is_aligned(address(X, 0, 0)) && depth_stride % 4 == 0 &&
                (X.rows % 4 == 0 || left >= LINES);
        const int line = K_MAJOR ? thread / deep : whole ? thread % side * 4 : thread % singles;
        k = K_MAJOR ? thread % deep : whole ? thread / side : thread / singles;
        first = k * LD + line;
        count = left - line;
        here = address(X, first_line + line, k);
    }

    /* Starts the copies of the next tile. */
    __device__ __forceinline__ void load(float (&tile)[DEPTH][LD])
    {
        copy<true>(&tile[0][0] + first, DEPTH);
    }

    /* Starts the copies of the first tile, which has `depth` steps of K. Zeros fill the rest of the
     * tile. All later tiles are whole. */
    __device__ __forceinline__ void load_part(float (&tile)[DEPTH][LD], int depth)
    {
        copy<false>(&tile[0][0] + first, depth);
    }

  private:
    template <bool INSIDE> __device__ __forceinline__ void copy(float *to, int depth)
    {
        const float *from = here;
        here += depth * depth_stride;
        if constexpr (K_MAJOR) {
            const int64_t stride = lines * line_stride;
            UNROLL(LINES / lines)
            for (int i = 0; i < LINES; i += lines) {
                UNROLL(DEPTH / deep)
                for (int d = 0; d < DEPTH; d += deep) {
                    cp_async4<fetched>(to + d * LD + i, from + d,
                                       i < count && (INSIDE || k + d < depth));
                }
                from += stride;
                keep_address(from);
            }
        } else if (whole) {
            const int64_t stride = rows * depth_stride;
            UNROLL(8)
            for (int d = 0; d < DEPTH; d += rows) {
                UNROLL(float4s / side)
                for (int q = 0; q < LINES; q += 4 * side) {
                    cp_async16(to + d * LD + q, from + q, q < count && (INSIDE || k + d < depth));
                }
                from += stride;
                keep_address(from);
            }
        } else {
            const int64_t stride = single_rows * depth_stride;
            UNROLL(8)
            for (int d = 0; d < DEPTH; d += single_rows) {
                UNROLL(LINES / singles)
                for (int i = 0; i < LINES; i += singles) {
                    cp_async4<128>(to + d * LD + i, from + i,
                                   i < count && (INSIDE || k + d < depth));
                }
                from += stride;
                keep_address(from);
            }
        }
    }
};

#endif
