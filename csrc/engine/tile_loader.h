/* Which floats of an operand's tile each thread copies to shared memory. */
#ifndef SGEMM_ENGINE_TILE_LOADER_H
#define SGEMM_ENGINE_TILE_LOADER_H

#include "copy_async.h"

/* Which way an operand's neighbours lie in memory, of a tile's lines, if the compiler is to know: then it writes out the
 * copies for that alone. */
enum Neighbours { EITHER_WAY, ACROSS_LINES, ALONG_DEPTH };

/* The greatest common divisor: of so many neighbours so many threads take as many side by side. */
static constexpr int common(int threads, int neighbours)
{
    return neighbours == 0 ? threads : common(neighbours, threads % neighbours);
}

/* What a thread loads of each of an operand's tiles, LINES x DEPTH for float4 loads, by THREADS
 * threads. Shared memory keeps a tile as [depth][line], rows LD apart. Where neighbours in memory
 * lie across the lines, whole quads are copied, or single floats if not all quads are aligned. Where
 * they lie along the depth, single floats are, each to its transposed place: a warp reads 32 bytes
 * of each of four lines, and as LD is 4 or 20 more than a multiple of 32, writes to 32 different banks. Or with
 * DEEP = 16, where that is faster, 64 bytes of each of two lines: it then writes twice to each of 16 banks.
 * Lines beyond the operand's last become zeros, for which nothing is read: where all blocks read one
 * line in their place, they waited for each other. */
template <int LINES, int DEPTH, int LD, int THREADS, int DEEP, Neighbours LIE> struct TileLoader {
    static constexpr int quads = LINES / 4;
    static constexpr int side = common(THREADS, quads);    // quads taken side by side
    static constexpr int rows = THREADS / side;            // and rows of them, at a time
    static constexpr int singles = common(THREADS, LINES); // floats taken side by side
    static constexpr int single_rows = THREADS / singles;
    static constexpr int deep = DEEP;            // floats of a line taken side by side,
    static constexpr int lines = THREADS / deep; // and lines of them, at a time
    static constexpr int fetched = 16 * deep;    // bytes, to the L2 cache
    static_assert(DEPTH % rows == 0 && quads % side == 0 && DEPTH % deep == 0 &&
                      LINES % lines == 0 && DEPTH % single_rows == 0 && LINES % singles == 0,
                  "all threads load equally much");

    const float *here;
    int64_t depth_stride, line_stride;
    int first;  // of this thread's places in a shared tile
    int k;      // at which depth that is
    int count;  // from this thread's first line to the operand's last
    bool along; // the depth
    bool whole; // across: each quad is aligned, and none crosses the operand's last line

    __device__ __forceinline__ TileLoader(const Matrix &X, int64_t first_line, int thread)
        : depth_stride(X.col_stride), line_stride(X.row_stride), along(X.col_stride == 1)
    {
        const int left = clamped(X.rows - first_line);
        whole = is_aligned(X.data) && depth_stride % 4 == 0 && (X.rows % 4 == 0 || left >= LINES);
        const int line = along_depth() ? thread / deep
                         : whole       ? thread % side * 4
                                       : thread % singles;
        k = along_depth() ? thread % deep : whole ? thread / side : thread / singles;
        first = k * LD + line;
        count = left - line;
        here = address(X, first_line + line, k);
    }

    /* Begins to copy the next tile. */
    __device__ __forceinline__ void load(float (&tile)[DEPTH][LD])
    {
        copy<true>(&tile[0][0] + first, DEPTH);
    }

    /* Begins to copy a first tile of which `depth` rows lie inside the operand; the others become
     * zeros, and the tiles that follow are whole. */
    __device__ __forceinline__ void load_part(float (&tile)[DEPTH][LD], int depth)
    {
        copy<false>(&tile[0][0] + first, depth);
    }

  private:
    __device__ __forceinline__ bool along_depth() const
    {
        return LIE == EITHER_WAY ? along : LIE == ALONG_DEPTH;
    }

    template <bool INSIDE> __device__ __forceinline__ void copy(float *to, int depth)
    {
        const float *from = here;
        here += depth * depth_stride;
        if (along_depth()) {
            const int64_t stride = lines * line_stride;
            UNROLL(LINES / lines)
            for (int i = 0; i < LINES; i += lines) {
                UNROLL(DEPTH / deep)
                for (int d = 0; d < DEPTH; d += deep) {
                    copy_async<fetched>(to + d * LD + i, from + d,
                                        i < count && (INSIDE || k + d < depth));
                }
                from += stride;
                KEEP(from);
            }
        } else if (whole) {
            const int64_t stride = rows * depth_stride;
            UNROLL(8)
            for (int d = 0; d < DEPTH; d += rows) {
                UNROLL(quads / side)
                for (int q = 0; q < LINES; q += 4 * side) {
                    copy_quad_async(to + d * LD + q, from + q,
                                    q < count && (INSIDE || k + d < depth));
                }
                from += stride;
                KEEP(from);
            }
        } else {
            const int64_t stride = single_rows * depth_stride;
            UNROLL(8)
            for (int d = 0; d < DEPTH; d += single_rows) {
                UNROLL(LINES / singles)
                for (int i = 0; i < LINES; i += singles) {
                    copy_async<128>(to + d * LD + i, from + i,
                                    i < count && (INSIDE || k + d < depth));
                }
                from += stride;
                KEEP(from);
            }
        }
    }
};

#endif
