/* Few rows of C, by matrix-vector products of up to eight at once: of these rows nothing of B is read twice, so
 * that tiles would gain nothing, and all that counts is how many bytes of it are on their way at once. A block has
 * some columns of C, of up to eight rows, and its threads share their steps of K. */
#ifndef SGEMM_KERNELS_AUTO_GEMV_H
#define SGEMM_KERNELS_AUTO_GEMV_H

#include "../../core/plan.h"
#include "../06_quad.h"
#include "../11_reduce.h"

namespace {

constexpr int gemv_threads = 1 << GEMV_THREAD_BITS, gemv_warps = gemv_threads / 32;

struct Gemv {
    SplitProduct product;
    unsigned across, groups; // blocks for all columns, and for all rows
    int width_bits;          // a block has 1 << width_bits columns
};

/* How many quads of B a thread has on their way at once, or twice as many single floats. */
template <int ROWS> constexpr int gemv_deep = GEMV_DEEP(ROWS);

/* One of a block's results. */
struct Place {
    int row, col;
};

/* The results of one block: ROWS rows of C, some columns, over a part of K. */
template <int ROWS> struct GemvBlock {
    int64_t row, col, begin, end;
    unsigned part;
    int rows; // that lie inside C

    __device__ __forceinline__ explicit GemvBlock(const Gemv &gemv)
        : row(0), begin(0), end(gemv.product.p.A.cols), part(0)
    {
        const SplitProduct &s = gemv.product;
        unsigned number = blockIdx.x;
        if (s.splits > 1) {
            const unsigned blocks = gemv.across * gemv.groups;
            const int64_t quads = (s.p.A.cols + 3) / 4;
            part = number / blocks;
            number -= part * blocks;
            begin = quads * part / s.splits * 4;
            end = part + 1 < static_cast<unsigned>(s.splits) ? quads * (part + 1) / s.splits * 4
                                                             : s.p.A.cols;
        }
        if (gemv.groups > 1) { // those of the same columns come one after the other
            const unsigned column = number / gemv.groups;
            row = static_cast<int64_t>(number - column * gemv.groups) * ROWS;
            number = column;
        }
        col = static_cast<int64_t>(number) << gemv.width_bits;
        const int left = clamped(s.p.C.rows - row);
        rows = left < ROWS ? left : ROWS;
    }

    /* Neighbouring threads store neighbours, which lie in a row of C, or in a column. */
    __device__ __forceinline__ static Place place_of(const Gemv &gemv, int i)
    {
        const Sgemm &p = gemv.product.p;
        if (p.C.row_stride == 1 && !gemv.product.partials) {
            return {i % ROWS, i / ROWS};
        }
        return {i >> gemv.width_bits, i & ((1 << gemv.width_bits) - 1)};
    }

    __device__ __forceinline__ void store(const SplitProduct &s, int r, int64_t c, float sum) const
    {
        if (r >= rows) {
            return;
        }
        if (s.partials && c < s.ld) {
            s.partials[(part * s.p.C.rows + row + r) * s.ld + c] = sum; // padding and all
        } else if (!s.partials && c < s.p.C.cols) {
            float *const to = address(s.p.C, row + r, c);
            *to = scaled(s.p, sum, s.p.beta == 0.0f ? 0.0f : *to);
        }
    }
};

/* A quad of B, which is read once by each eight rows, and so shall not drive anything else out of the L2
 * cache. */
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

template <int ROWS> struct SumsByRows {
    static constexpr int width = GEMV_WIDEST_BY_ROWS(ROWS);
    float sums[gemv_warps][ROWS][width];
};

/* Adds A(row + r, k) * B(k, col ... col + 3) for each k = first, first + step ... before the end. WHOLE:
 * by quads, which are aligned and lie inside B. */
template <bool WHOLE, int ROWS>
__device__ __forceinline__ void add_rows(const Sgemm &p, const GemvBlock<ROWS> &block, int64_t col,
                                         int64_t first, int step, float (&sum)[ROWS][4])
{
    constexpr int deep = gemv_deep<ROWS>;
    const int count = clamped(p.B.cols - col);
    const float *a = address(p.A, block.row, first), *b = address(p.B, first, col);
    UNROLL(1)
    for (int64_t left = block.end - first; left > 0; left -= deep * step) {
        float factor[deep][ROWS] = {}, quad[deep][4] = {};
        UNROLL(deep)
        for (int d = 0; d < deep; ++d) {
            const bool there = d * step < left;
            if (WHOLE && there) {
                load_once(quad[d], b);
            }
            for (int i = 0; i < 4; ++i) {
                if (!WHOLE && there && i < count) {
                    quad[d][i] = b[i];
                }
            }
            UNROLL(ROWS)
            for (int r = 0; r < ROWS; ++r) {
                if (there && r < block.rows) {
                    factor[d][r] = a[r * p.A.row_stride];
                }
            }
            a += step * p.A.col_stride;
            b += step * p.B.row_stride;
        }
        UNROLL(deep)
        for (int d = 0; d < deep; ++d) {
            UNROLL(ROWS)
            for (int r = 0; r < ROWS; ++r) {
                UNROLL(4)
                for (int i = 0; i < 4; ++i) {
                    sum[r][i] = multiply_add(factor[d][r], quad[d][i], sum[r][i]);
                }
            }
        }
    }
}

/* A thread takes a quad of columns, at every step of K that is its own. */
template <int ROWS>
__global__ void __launch_bounds__(gemv_threads, GEMV_RESIDENT(true, ROWS))
    gemv_by_rows(const Gemv gemv)
{
    const SplitProduct &s = gemv.product;
    SumsByRows<ROWS> &shared = dynamic_shared<SumsByRows<ROWS>>();
    const GemvBlock<ROWS> block(gemv);
    const int side_bits = gemv.width_bits - 2, side = 1 << side_bits; // quads side by side
    const int thread = threadIdx.x, x = thread & (side - 1), y = thread >> side_bits;
    const int step = gemv_threads >> side_bits;
    const int64_t col = block.col + 4 * x, first = block.begin + y;

    float sum[ROWS][4] = {};
    if (is_aligned(s.p.B.data) && s.p.B.row_stride % 4 == 0 && col + 3 < s.p.B.cols) {
        add_rows<true>(s.p, block, col, first, step, sum);
    } else if (col < s.p.B.cols) {
        add_rows<false>(s.p, block, col, first, step, sum);
    }
    UNROLL(1)
    for (int lanes = 16; lanes >= side; lanes /= 2) { // of the warp's threads with the same columns
        UNROLL(ROWS)
        for (int r = 0; r < ROWS; ++r) {
            UNROLL(4)
            for (int i = 0; i < 4; ++i) {
                sum[r][i] += __shfl_down_sync(0xffffffffu, sum[r][i], lanes);
            }
        }
    }
    if (thread % 32 < side) {
        UNROLL(ROWS)
        for (int r = 0; r < ROWS; ++r) {
            *reinterpret_cast<float4 *>(&shared.sums[thread / 32][r][4 * x]) =
                make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        }
    }
    __syncthreads();
    let_next_kernel_begin();
    UNROLL(1)
    for (int i = thread; i < ROWS << gemv.width_bits; i += gemv_threads) {
        const Place to = block.place_of(gemv, i);
        float all = 0.0f;
        UNROLL(gemv_warps)
        for (int warp = 0; warp < gemv_warps; ++warp) {
            all += shared.sums[warp][to.row][to.col];
        }
        block.store(s, to.row, block.col + to.col, all);
    }
}

/* ------------------------------------------------------------------ B by columns */

template <int ROWS> struct SumsByColumns {
    float sums[GEMV_WIDEST_BY_COLUMNS][ROWS]; // of those threads of a column that share a warp
};

/* Adds A(row + r, k) * B(k, col) for groups of WIDTH neighbours along K: this thread's, from begin to end,
 * are every `sharers`-th of them. */
template <int WIDTH, int ROWS>
__device__ __forceinline__ void add_column(const Sgemm &p, const GemvBlock<ROWS> &block,
                                           int64_t col, int sharer, int sharers, int64_t begin,
                                           int64_t end, float (&sum)[ROWS])
{
    constexpr int deep = gemv_deep<ROWS> * (WIDTH == 4 ? 1 : 2);
    const int step = sharers * WIDTH;
    const float *a = address(p.A, block.row, begin + sharer * WIDTH);
    const float *b = address(p.B, begin + sharer * WIDTH, col);
    UNROLL(1)
    for (int64_t left = end - begin - sharer * WIDTH; left > 0; left -= deep * step) {
        float group[deep][WIDTH] = {};
        UNROLL(deep)
        for (int d = 0; d < deep; ++d) {
            if (d * step < left) {
                if constexpr (WIDTH == 4) {
                    load_once(group[d], b + d * step);
                } else {
                    group[d][0] = b[d * step];
                }
            }
        }
        UNROLL(deep)
        for (int d = 0; d < deep; ++d) {
            UNROLL(ROWS)
            for (int r = 0; r < ROWS; ++r) {
                float factor[WIDTH] = {};
                if (d * step < left && r < block.rows) {
                    const float *const from = a + r * p.A.row_stride;
                    if constexpr (WIDTH == 4) {
                        read_quad(factor, from);
                    } else {
                        factor[0] = *from;
                    }
                }
                UNROLL(WIDTH)
                for (int i = 0; i < WIDTH; ++i) {
                    sum[r] = multiply_add(factor[i], group[d][i], sum[r]);
                }
            }
            a += step * p.A.col_stride;
        }
        b += deep * step;
    }
}

/* Some threads share a column of B: eight to all of the block. */
template <int ROWS>
__global__ void __launch_bounds__(gemv_threads, GEMV_RESIDENT(false, ROWS))
    gemv_by_columns(const Gemv gemv)
{
    const SplitProduct &s = gemv.product;
    SumsByColumns<ROWS> &shared = dynamic_shared<SumsByColumns<ROWS>>();
    const GemvBlock<ROWS> block(gemv);
    const int sharer_bits = GEMV_THREAD_BITS - gemv.width_bits, sharers = 1 << sharer_bits;
    const int lane_bits = sharer_bits < 5 ? sharer_bits : 5; // of those that share a warp, too
    const int thread = threadIdx.x, sharer = thread & (sharers - 1);
    const int64_t col = block.col + (thread >> sharer_bits);

    float sum[ROWS] = {};
    if (col < s.p.B.cols) {
        const Matrix &A = s.p.A;
        const bool whole = is_aligned(address(s.p.B, 0, col)) && A.col_stride == 1 &&
                           is_aligned(A.data) && (A.row_stride % 4 == 0 || A.rows == 1);
        const int64_t quads_end =
            whole ? block.begin + (block.end - block.begin) / 4 * 4 : block.begin;
        add_column<4>(s.p, block, col, sharer, sharers, block.begin, quads_end, sum);
        add_column<1>(s.p, block, col, sharer, sharers, quads_end, block.end, sum);
    }
    UNROLL(1)
    for (int lanes = 1 << lane_bits >> 1; lanes > 0; lanes /= 2) {
        UNROLL(ROWS)
        for (int r = 0; r < ROWS; ++r) {
            sum[r] += __shfl_down_sync(0xffffffffu, sum[r], lanes);
        }
    }
    if ((thread & ((1 << lane_bits) - 1)) == 0) {
        UNROLL(ROWS)
        for (int r = 0; r < ROWS; ++r) {
            shared.sums[thread >> lane_bits][r] = sum[r];
        }
    }
    __syncthreads();
    let_next_kernel_begin();
    if (thread < ROWS << gemv.width_bits) {
        const Place to = block.place_of(gemv, thread);
        const int warps_bits = sharer_bits - lane_bits; // of a column
        float all = 0.0f;
        UNROLL(1)
        for (int warp = 0; warp < 1 << warps_bits; ++warp) {
            all += shared.sums[(to.col << warps_bits) + warp][to.row];
        }
        block.store(s, to.row, block.col + to.col, all);
    }
}

/* ------------------------------------------------------------------ on the host */

template <int ROWS> Status launch_gemv_of(const SplitProduct &s, int width, const Launch *where)
{
    const bool by_rows = s.p.B.row_stride != 1;
    const int least = by_rows ? 4 : 1;
    const int most = by_rows ? GEMV_WIDEST_BY_ROWS(ROWS) : GEMV_WIDEST_BY_COLUMNS;
    int bits = 0;
    while (1 << bits < (width < least ? least : width < most ? width : most)) {
        ++bits;
    }
    const int cols = 1 << bits;
    const int64_t all = s.partials ? s.ld : s.p.C.cols; // of parts the padding, too, which is added
    const int64_t across = (all + cols - 1) / cols, groups = (s.p.C.rows + ROWS - 1) / ROWS;
    const Gemv gemv = {s, static_cast<unsigned>(across), static_cast<unsigned>(groups), bits};
    const KernelSpec spec = {
        by_rows ? "gemv_by_rows" : "gemv_by_columns",
        {ROWS, cols, 4},
        {ROWS, 4},
        {gemv_threads, 1},
        0,
        static_cast<int>(by_rows ? sizeof(SumsByRows<ROWS>) : sizeof(SumsByColumns<ROWS>)),
        1,
        false,
        ""};
    return launch_blocks(by_rows ? gemv_by_rows<ROWS> : gemv_by_columns<ROWS>, spec,
                         across * groups * s.splits, gemv, where);
}

/* Launches a product of these rows, in blocks of so many columns, a power of two, or the nearest that there
 * is. */
Status launch_gemv(const SplitProduct &s, int width, const Launch *where)
{
    const auto launch = s.p.C.rows == 1   ? launch_gemv_of<1>
                        : s.p.C.rows == 2 ? launch_gemv_of<2>
                        : s.p.C.rows <= 4 ? launch_gemv_of<4>
                                          : launch_gemv_of<GEMV_ROWS>;
    return launch(s, width, where);
}

} // namespace

#endif
