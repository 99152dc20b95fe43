/* Rows of C by a matrix-vector product each: nothing of B is read twice, so that tiles would gain
 * nothing, and all that counts is how many bytes of B are on their way at once. */
#ifndef SGEMM_KERNELS_AUTO_GEMV_H
#define SGEMM_KERNELS_AUTO_GEMV_H

#include "../../core/plan.h"
#include "../06_quad.h"
#include "../11_reduce.h"

namespace {

constexpr int gemv_threads = 32 * GEMV_COLUMNS;

struct Gemv {
    SplitProduct product;
    int width; // columns of a block where B lies by rows
};

/* The results of one block: `width` columns of one row of C, over a part of K. */
struct GemvBlock {
    int64_t row, col, begin, end;
    unsigned part;

    __device__ __forceinline__ GemvBlock(const SplitProduct &s, int width)
    {
        const unsigned across = static_cast<unsigned>((s.p.C.cols + width - 1) / width);
        const unsigned tiles = across * static_cast<unsigned>(s.p.C.rows);
        const int64_t quads = (s.p.A.cols + 3) / 4;
        part = blockIdx.x / tiles;
        row = blockIdx.x % tiles / across;
        col = static_cast<int64_t>(blockIdx.x % across) * width;
        begin = quads * part / s.splits * 4;
        end = part + 1 < static_cast<unsigned>(s.splits) ? quads * (part + 1) / s.splits * 4
                                                         : s.p.A.cols;
    }

    __device__ __forceinline__ void store(const SplitProduct &s, int64_t c, float sum) const
    {
        if (s.partials && c < s.ld) {
            s.partials[(part * s.p.C.rows + row) * s.ld + c] = sum; // padding and all
        } else if (!s.partials && c < s.p.C.cols) {
            float *const to = address(s.p.C, row, c);
            *to = scaled(s.p, sum, s.p.beta == 0.0f ? 0.0f : *to);
        }
    }
};

/* How many loads of B a thread has on their way at once. */
constexpr int gemv_deep = 4;

/* A quad of B, which is read once, and so shall not drive anything else out of the L2 cache. */
__device__ __forceinline__ void load_once(float *to, const float *from)
{
#ifdef __CUDACC__
    const float4 quad = __ldcs(reinterpret_cast<const float4 *>(from));
    read_quad(to, &quad.x);
#else
    read_quad(to, from);
#endif
}

/* ------------------------------------------------------------------ B by rows */

/* Adds a(k) * B(k, col ... col + 3) for each k = first, first + step ... before the end. WHOLE: by
 * quads, which are aligned and lie inside B. */
template <bool WHOLE>
__device__ __forceinline__ void add_rows(const SplitProduct &s, const GemvBlock &block, int64_t col,
                                         int64_t first, int step, float (&sum)[4])
{
    const int count = clamped(s.p.B.cols - col);
    const float *a = address(s.p.A, block.row, first), *b = address(s.p.B, first, col);
    UNROLL(1)
    for (int64_t left = block.end - first; left > 0; left -= gemv_deep * step) {
        float factor[gemv_deep] = {}, quad[gemv_deep][4] = {};
        UNROLL(gemv_deep)
        for (int d = 0; d < gemv_deep; ++d) {
            const bool there = d * step < left;
            if (there) {
                factor[d] = *a;
            }
            if (WHOLE && there) {
                load_once(quad[d], b);
            }
            for (int i = 0; i < 4; ++i) {
                if (!WHOLE && there && i < count) {
                    quad[d][i] = b[i];
                }
            }
            a += step * s.p.A.col_stride;
            b += step * s.p.B.row_stride;
        }
        UNROLL(gemv_deep)
        for (int d = 0; d < gemv_deep; ++d) {
            for (int i = 0; i < 4; ++i) {
                sum[i] = multiply_add(factor[d], quad[d][i], sum[i]);
            }
        }
    }
}

/* A thread takes a quad of columns, at every k that is its own. */
__global__ void __launch_bounds__(gemv_threads, 2) gemv_by_rows(const Gemv gemv)
{
    const SplitProduct &s = gemv.product;
    __shared__ float sums[gemv_threads][4];
    const GemvBlock block(s, gemv.width);
    const int side = gemv.width / 4, step = gemv_threads / side;
    const int thread = threadIdx.x, x = thread % side, y = thread / side;
    const int64_t col = block.col + 4 * x, first = block.begin + y;

    float sum[4] = {};
    if (is_aligned(s.p.B.data) && s.p.B.row_stride % 4 == 0 && col + 3 < s.p.B.cols) {
        add_rows<true>(s, block, col, first, step, sum);
    } else if (col < s.p.B.cols) {
        add_rows<false>(s, block, col, first, step, sum);
    }
    for (int i = 0; i < 4; ++i) {
        sums[thread][i] = sum[i];
    }
    for (int half = step / 2; half > 0; half /= 2) {
        __syncthreads();
        if (y < half) {
            for (int i = 0; i < 4; ++i) {
                sums[thread][i] += sums[thread + half * side][i];
            }
        }
    }
    let_next_kernel_begin();
    if (y == 0) {
        for (int i = 0; i < 4; ++i) {
            block.store(s, col + i, sums[thread][i]);
        }
    }
}

/* ------------------------------------------------------------------ B by columns */

/* The sum of a(k) * B(k, col) over every 32nd group of WIDTH neighbours from begin to end, which
 * lie whole groups apart. */
template <int WIDTH>
__device__ __forceinline__ float add_column(const SplitProduct &s, const GemvBlock &block,
                                            int64_t col, int lane, int64_t begin, int64_t end)
{
    constexpr int step = 32 * WIDTH;
    const float *a = address(s.p.A, block.row, begin + WIDTH * lane);
    const float *b = address(s.p.B, begin + WIDTH * lane, col);
    float sum = 0.0f;
    UNROLL(1)
    for (int64_t left = end - begin - WIDTH * lane; left > 0; left -= gemv_deep * step) {
        float factor[gemv_deep][WIDTH] = {}, group[gemv_deep][WIDTH] = {};
        UNROLL(gemv_deep)
        for (int d = 0; d < gemv_deep; ++d) {
            if (d * step < left) {
                if constexpr (WIDTH == 4) {
                    load_once(group[d], b + d * step);
                    read_quad(factor[d], a + d * step);
                } else {
                    group[d][0] = b[d * step];
                    factor[d][0] = a[d * step * s.p.A.col_stride];
                }
            }
        }
        UNROLL(gemv_deep)
        for (int d = 0; d < gemv_deep; ++d) {
            for (int i = 0; i < WIDTH; ++i) {
                sum = multiply_add(factor[d][i], group[d][i], sum);
            }
        }
        a += gemv_deep * step * s.p.A.col_stride;
        b += gemv_deep * step;
    }
    return sum;
}

/* A warp takes a column of B. */
__global__ void __launch_bounds__(gemv_threads, 2) gemv_by_columns(const Gemv gemv)
{
    const SplitProduct &s = gemv.product;
    __shared__ float sums[gemv_threads];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const GemvBlock block(s, GEMV_COLUMNS);
    const int64_t col = block.col + warp;

    float sum = 0.0f;
    if (col < s.p.B.cols) {
        const bool whole = is_aligned(address(s.p.B, 0, col)) && s.p.A.col_stride == 1 &&
                           is_aligned(address(s.p.A, block.row, 0));
        const int64_t quads_end =
            whole ? block.begin + (block.end - block.begin) / 4 * 4 : block.begin;
        sum = add_column<4>(s, block, col, lane, block.begin, quads_end);
        sum += add_column<1>(s, block, col, lane, quads_end, block.end);
    }
    sums[threadIdx.x] = sum;
    for (int half = 16; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
    }
    let_next_kernel_begin();
    if (lane == 0) {
        block.store(s, col, sums[threadIdx.x]);
    }
}

/* ------------------------------------------------------------------ on the host */

/* Launches a product of these rows, in blocks of so many columns where B lies by rows. */
Status launch_gemv(const SplitProduct &s, int width, const Launch *where)
{
    const bool by_rows = s.p.B.row_stride != 1;
    const int cols = by_rows ? width : GEMV_COLUMNS;
    const KernelSpec spec = {by_rows ? "gemv_by_rows" : "gemv_by_columns",
                             {1, cols, 4},
                             {1, 4},
                             {gemv_threads, 1},
                             static_cast<int>(sizeof(float)) * gemv_threads * (by_rows ? 4 : 1),
                             0,
                             1,
                             false,
                             ""};
    const Gemv gemv = {s, width};
    return launch_blocks(by_rows ? gemv_by_rows : gemv_by_columns, spec,
                         tiles_of(s.p.C, 1, cols) * s.splits, gemv, where);
}

} // namespace

#endif
