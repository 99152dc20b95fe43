/* Products with few rows of C: matrix-vector products for up to eight rows at once. Each element
 * of B is read once for these rows, so tiles would not help: the bytes in flight decide the
 * speed. A block computes some columns of up to eight rows, and its threads divide K. */
#ifndef SGEMM_GEMM_GEMV_H
#define SGEMM_GEMM_GEMV_H

#include "../../base/addend.h"
#include "../plan/plan.h"
#include "../simt/partial_sums.h"

namespace {

constexpr int gemv_threads = 1 << GEMV_THREAD_BITS, gemv_warps = gemv_threads / 32;

struct Gemv {
    Sgemm p;
    SplitK split_k; // the splits, in units of four steps of K; the last one takes the remainder
    unsigned across, groups; // blocks along the columns, and along the rows of C
    int width_bits;          // log2 of a block's columns
    int column_step;         // distance between a block's columns
    float *sums;             // partial sums, [block of results][split]; NULL without split-K
    unsigned *arrived;       // counters, one for each block of results
    Matrix addend;           // what beta multiplies: C itself, or another matrix
};

/* The position of a result in a block's results. */
struct Place {
    int row, col;
};

/* The results of one block: ROWS rows and some columns of C, over one split of K. */
template <int ROWS> struct GemvBlock {
    int64_t row, col, begin, end;
    unsigned part, number; // its split, and its number among the blocks of that split
    int rows;              // rows of the block that are inside C

    __device__ __forceinline__ explicit GemvBlock(const Gemv &gemv)
        : row(0), begin(0), end(gemv.p.A.cols), part(0), number(blockIdx.x)
    {
        const Sgemm &p = gemv.p;
        if (gemv.split_k.count > 1) {
            const unsigned blocks = gemv.across * gemv.groups;
            const auto [of_part, remainder] = divided(number, blocks);
            part = of_part;
            number = remainder;
            begin = gemv.split_k.first(part) * 4;
            if (part + 1 < static_cast<unsigned>(gemv.split_k.count)) {
                end = gemv.split_k.first(part + 1) * 4;
            }
        }
        unsigned column = number;
        if (gemv.groups > 1) { // blocks with the same columns have consecutive numbers
            const auto [of_columns, remainder] = divided(number, gemv.groups);
            column = of_columns;
            row = static_cast<int64_t>(remainder) * ROWS;
        }
        const unsigned first = column & (gemv.column_step - 1);
        col = (static_cast<int64_t>(column - first) << gemv.width_bits) + first;
        const int left = clamped(p.C.rows - row);
        rows = left < ROWS ? left : ROWS;
    }

    /* Copies steps k to k + count - 1 of K of the block's rows of A to shared memory. `tile` is the
     * number of the copy, from 0. */
    template <class Shared>
    __device__ __forceinline__ void stage(Shared &shared, const Matrix &A, int64_t k, int count,
                                          int tile) const
    {
        // Neighbouring threads copy neighbouring floats, of different rows, to different banks.
        constexpr int bits = ROWS == 8 ? 3 : ROWS / 2, step = gemv_threads >> bits;
        const int thread = threadIdx.x, r = thread & ((1 << bits) - 1);
        if (tile > 0) {
            __syncthreads(); // all threads have read the previous copy
        }
        int i = thread >> bits;
        const float *from = address(A, row + r, k + i);
        UNROLL(1)
        for (; r < rows && i < count; i += 4 * step) {
            UNROLL(4)
            for (int n = 0; n < 4; ++n) {
                if (i + n * step < count) {
                    cp_async4<128>(&shared.factors[r][i + n * step], from, true);
                }
                from += step * A.col_stride;
            }
        }
        shared.pipeline.commit(tile);
        shared.pipeline.wait(tile);
    }

    /* The first step of K from which float4s of the block's columns are aligned. */
    __device__ __forceinline__ int64_t first_aligned_k(const Matrix &B) const
    {
        const auto place = reinterpret_cast<uintptr_t>(address(B, begin, col)) / sizeof(float);
        return begin + (4 - static_cast<int>(place % 4)) % 4;
    }

    /* Neighbouring threads store neighbouring results, along a row or a column of C. */
    __device__ __forceinline__ static Place place_of(const Gemv &gemv, int i)
    {
        if (gemv.p.C.row_stride == 1) {
            return {i % ROWS, i / ROWS};
        }
        return {i >> gemv.width_bits, i & ((1 << gemv.width_bits) - 1)};
    }

    __device__ __forceinline__ void store(const Gemv &gemv, const Place &to, float sum) const
    {
        const Sgemm &p = gemv.p;
        const int64_t c = col + to.col * gemv.column_step;
        if (to.row < rows && c < p.C.cols) {
            const float old = p.beta == 0.0f ? 0.0f : *address(gemv.addend, row + to.row, c);
            *address(p.C, row + to.row, c) = scaled(p, sum, old);
        }
    }

    /* Stores the block's results, which sum_at(place) returns. With split-K, writes them to
     * memory as float4s, and the last block to arrive adds and stores all. */
    template <class Shared, class SumAt>
    __device__ __forceinline__ void store_all(const Gemv &gemv, Shared &shared, SumAt sum_at) const
    {
        const int thread = static_cast<int>(threadIdx.x), count = ROWS << gemv.width_bits;
        if (!gemv.sums) {
            UNROLL(1)
            for (int i = thread; i < count; i += gemv_threads) {
                const Place to = place_of(gemv, i);
                store(gemv, to, sum_at(to));
            }
            return;
        }
        const int float4s = (count + 3) / 4, splits = gemv.split_k.count;
        float *const sums = gemv.sums + static_cast<int64_t>(number) * splits * 4 * float4s;
        UNROLL(1)
        for (int i = thread; i < 4 * float4s; i += gemv_threads) {
            sums[static_cast<int>(part) * 4 * float4s + i] =
                i < count ? sum_at(place_of(gemv, i)) : 0.0f;
        }
        if (last_to_arrive(gemv.arrived + number, splits, shared.is_last)) {
            add_few<gemv_threads>(reinterpret_cast<const float4 *>(sums), float4s, float4s, splits,
                                  shared.between, [&](int vector, const float4 &sum) {
                                      const float elements[4] = {sum.x, sum.y, sum.z, sum.w};
                                      UNROLL(4)
                                      for (int i = 0; i < 4; ++i) {
                                          if (4 * vector + i < count) {
                                              store(gemv, place_of(gemv, 4 * vector + i),
                                                    elements[i]);
                                          }
                                      }
                                  });
        }
    }
};

/* A block's shared memory: for the product, then for adding splits (add_few), and a flag for
 * last_to_arrive(). */
template <class Computing> struct GemvShared {
    union {
        Computing computing;
        float4 between[gemv_threads];
    };
    bool is_last;
};

/* Loads a float4 of B with a streaming hint, since B is read once for eight rows: it need not
 * stay in the L2 cache. */
__device__ __forceinline__ void load_once(float *to, const float *from)
{
#ifdef __CUDACC__
    const float4 vector = __ldcs(reinterpret_cast<const float4 *>(from));
    read4(to, &vector.x);
#else
    read4(to, from);
#endif
}

/* ------------------------------------------------------------------ B row-major */

/* Resident blocks that the compiler must leave registers for. On other architectures than 9.0 it
 * would spill for two rows. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
template <int ROWS> constexpr int gemv_resident = ROWS == 2 ? 1 : GEMV_RESIDENT(ROWS);
#else
template <int ROWS> constexpr int gemv_resident = GEMV_RESIDENT(ROWS);
#endif

template <int ROWS> struct SumsByRows {
    static constexpr int width = GEMV_WIDEST_BY_ROWS(ROWS);
    float sums[gemv_warps][ROWS][width];
};

/* Adds A(row + r, k) * B(k, c) for four columns c, from `col` on `apart` from each other, and for
 * k = first, first + step, ... up to the end of the block's split. WHOLE: the four elements of B
 * are an aligned float4 inside B. */
template <bool WHOLE, int ROWS>
__device__ __forceinline__ void add_rows(const Sgemm &p, const GemvBlock<ROWS> &block, int64_t col,
                                         int apart, int64_t first, int step, float (&sum)[ROWS][4])
{
    constexpr int deep = GEMV_DEEP(ROWS, false);
    const int count = clamped(p.B.cols - col);
    const float *a = address(p.A, block.row, first), *b = address(p.B, first, col);
    UNROLL(1)
    for (int64_t left = block.end - first; left > 0; left -= deep * step) {
        float factor[deep][ROWS] = {}, vector[deep][4] = {};
        UNROLL(deep)
        for (int d = 0; d < deep; ++d) {
            const bool there = d * step < left;
            if (WHOLE && there) {
                load_once(vector[d], b);
            }
            for (int i = 0; i < 4; ++i) {
                if (!WHOLE && there && i * apart < count) {
                    vector[d][i] = b[i * apart];
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
                    sum[r][i] = multiply_add(factor[d][r], vector[d][i], sum[r][i]);
                }
            }
        }
    }
}

/* Each thread computes four columns and takes every n-th step of K. If float4s of B are not
 * aligned, neighbouring threads have neighbouring columns, so that a warp reads whole sectors. */
template <int ROWS>
__global__ void __launch_bounds__(gemv_threads, gemv_resident<ROWS>) gemv_by_rows(const Gemv gemv)
{
    const Sgemm &p = gemv.p;
    auto &all_shared = dynamic_shared<GemvShared<SumsByRows<ROWS>>>();
    SumsByRows<ROWS> &shared = all_shared.computing;
    const GemvBlock<ROWS> block(gemv);
    const int side_bits = gemv.width_bits - 2, side = 1 << side_bits; // float4s along a row of B
    const int thread = threadIdx.x, x = thread & (side - 1), y = thread >> side_bits;
    const int step = gemv_threads >> side_bits;
    const bool whole = is_aligned(address(p.B, 0, 0)) && p.B.row_stride % 4 == 0 &&
                       (p.B.cols % 4 == 0 || block.col + 4 * side <= p.B.cols);
    const int own = whole ? 4 * x : x, apart = whole ? 1 : side; // this thread's columns
    const int64_t col = block.col + own, first = block.begin + y;

    float sum[ROWS][4] = {};
    if (whole && col < p.B.cols) {
        add_rows<true>(p, block, col, apart, first, step, sum);
    } else if (col < p.B.cols) {
        add_rows<false>(p, block, col, apart, first, step, sum);
    }
    UNROLL(1)
    for (int lanes = 16; lanes >= side; lanes /= 2) { // threads of a warp with the same columns
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
            UNROLL(4)
            for (int i = 0; i < 4; ++i) {
                shared.sums[thread / 32][r][own + i * apart] = sum[r][i];
            }
        }
    }
    __syncthreads();
    block.store_all(gemv, all_shared, [&](const Place &of) {
        float all = 0.0f;
        UNROLL(gemv_warps)
        for (int warp = 0; warp < gemv_warps; ++warp) {
            all += shared.sums[warp][of.row][of.col];
        }
        return all;
    });
}

/* ------------------------------------------------------------------ B column-major, all aligned */

template <int ROWS> struct SumsByColumns {
    float sums[GEMV_WIDEST_BY_COLUMNS][ROWS]; // of each warp, for each of its columns
};

/* Adds A(row + r, k) * B(k, col) in aligned float4s along K. This thread takes every `sharers`-th
 * float4. */
template <int ROWS>
__device__ __forceinline__ void add_column(const Sgemm &p, const GemvBlock<ROWS> &block,
                                           int64_t col, int sharer, int sharers, float (&sum)[ROWS])
{
    constexpr int deep = GEMV_DEEP(ROWS, false);
    const int step = 4 * sharers;
    const float *a = address(p.A, block.row, block.begin + 4 * sharer);
    const float *b = address(p.B, block.begin + 4 * sharer, col);
    UNROLL(1)
    for (int64_t left = block.end - block.begin - 4 * sharer; left > 0; left -= deep * step) {
        float vector[deep][4] = {};
        UNROLL(deep)
        for (int d = 0; d < deep; ++d) {
            if (d * step < left) {
                load_once(vector[d], b + d * step);
            }
        }
        UNROLL(deep)
        for (int d = 0; d < deep; ++d) {
            UNROLL(ROWS)
            for (int r = 0; r < ROWS; ++r) {
                float factor[4] = {};
                if (d * step < left && r < block.rows) {
                    read4(factor, a + r * p.A.row_stride);
                }
                UNROLL(4)
                for (int i = 0; i < 4; ++i) {
                    sum[r] = multiply_add(factor[i], vector[d][i], sum[r]);
                }
            }
            a += step;
        }
        b += deep * step;
    }
}

/* Several threads share a column of B: from eight threads to the whole block. */
template <int ROWS>
__global__ void __launch_bounds__(gemv_threads, GEMV_RESIDENT_BY_FLOAT4(ROWS))
    gemv_by_columns(const Gemv gemv)
{
    const Sgemm &p = gemv.p;
    auto &all_shared = dynamic_shared<GemvShared<SumsByColumns<ROWS>>>();
    SumsByColumns<ROWS> &shared = all_shared.computing;
    const GemvBlock<ROWS> block(gemv);
    const int sharer_bits = GEMV_THREAD_BITS - gemv.width_bits, sharers = 1 << sharer_bits;
    const int lane_bits = sharer_bits < 5 ? sharer_bits : 5; // log2 of a column's threads in a warp
    const int thread = threadIdx.x, sharer = thread & (sharers - 1);
    const int64_t col = block.col + (thread >> sharer_bits);

    float sum[ROWS] = {};
    if (col < p.B.cols) {
        add_column(p, block, col, sharer, sharers, sum);
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
    const int warps_bits = sharer_bits - lane_bits; // log2 of a column's warps
    block.store_all(gemv, all_shared, [&](const Place &of) {
        float all = 0.0f;
        UNROLL(1)
        for (int warp = 0; warp < 1 << warps_bits; ++warp) {
            all += shared.sums[(of.col << warps_bits) + warp][of.row];
        }
        return all;
    });
}

/* ------------------------------------------------------ B column-major, any alignment */

/* A block's shared memory. STAGED: A is not K-major, so `depth` steps of K of the block's rows are
 * transposed here. Afterwards it holds the sums of the warps. */
template <int ROWS, bool STAGED> struct UnalignedColumns {
    static constexpr int depth = STAGED ? GEMV_STAGED(ROWS) : INT32_MAX;
    union {
        alignas(16) float factors[ROWS][STAGED ? GEMV_STAGED(ROWS) + float4_padding : 1];
        float sums[GEMV_WIDEST_BY_COLUMNS][ROWS]; // of each warp, for each of its columns
    };
    Pipeline<1> pipeline;
};

/* Several threads share a column of B: from eight threads to the whole block. They read aligned
 * float4s, and single floats before the first and after the last float4. The block's columns are
 * GEMV_COLUMN_STEP from each other, so that all have the same alignment. */
template <int ROWS, bool STAGED>
__device__ __forceinline__ void
add_columns(const Sgemm &p, const GemvBlock<ROWS> &block, int64_t col, int sharer, int sharers,
            UnalignedColumns<ROWS, STAGED> &shared, float (&sum)[ROWS])
{
    typedef UnalignedColumns<ROWS, STAGED> Shared;
    constexpr int deep = GEMV_DEEP(ROWS, STAGED);
    const int64_t k = block.first_aligned_k(p.B), all = block.end - k > 0 ? (block.end - k) / 4 : 0;
    const int round = deep * sharers < Shared::depth / 4 ? deep * sharers : Shared::depth / 4;
    const bool inside_B = col < p.B.cols;

    // Each thread takes at most one of the single floats, and loads it early.
    const int before = static_cast<int>((k < block.end ? k : block.end) - block.begin);
    const int behind = static_cast<int>(block.end - block.begin - before - 4 * all);
    float single = 0.0f, factors[ROWS] = {};
    if (inside_B && sharer < before + behind) {
        const int64_t own = sharer < before ? block.begin + sharer : k + 4 * all + sharer - before;
        single = at(p.B, own, col);
        UNROLL(ROWS)
        for (int r = 0; r < ROWS; ++r) {
            if (r < block.rows) {
                factors[r] = at(p.A, block.row + r, own);
            }
        }
    }
    const float *b = address(p.B, k + 4 * sharer, col);
    const float *a = address(p.A, block.row, k + 4 * sharer);
    UNROLL(1)
    for (int64_t q = 0; q < all; q += round) {
        const int left = clamped(all - q), upto = left < round ? left : round;
        const int there = inside_B ? upto : 0;
        float vector[deep][4] = {};
        UNROLL(deep)
        for (int d = 0; d < deep; ++d) {
            if (sharer + d * sharers < there) {
                load_once(vector[d], b + 4 * d * sharers);
            }
        }
        int at = 0; // first step of this round in shared memory
        if constexpr (STAGED) {
            at = static_cast<int>(4 * q % Shared::depth);
            if (at == 0) {
                block.stage(shared, p.A, k + 4 * q,
                            left < Shared::depth / 4 ? 4 * left : Shared::depth,
                            static_cast<int>(4 * q / Shared::depth));
            }
        }
        UNROLL(deep)
        for (int d = 0; d < deep; ++d) {
            const bool own = sharer + d * sharers < there;
            UNROLL(ROWS)
            for (int r = 0; r < ROWS; ++r) {
                float factor[4] = {};
                if (STAGED && own) {
                    read4(factor, &shared.factors[r][at + 4 * (sharer + d * sharers)]);
                } else if (!STAGED && own && r < block.rows) {
                    UNROLL(4)
                    for (int i = 0; i < 4; ++i) {
                        factor[i] = a[r * p.A.row_stride + 4 * d * sharers + i];
                    }
                }
                UNROLL(4)
                for (int i = 0; i < 4; ++i) {
                    sum[r] = multiply_add(factor[i], vector[d][i], sum[r]);
                }
            }
        }
        a += 4 * round;
        b += 4 * round;
    }
    UNROLL(ROWS)
    for (int r = 0; r < ROWS; ++r) {
        sum[r] = multiply_add(factors[r], single, sum[r]);
    }
}

template <int ROWS, bool STAGED>
__global__ void __launch_bounds__(gemv_threads, gemv_resident<ROWS>)
    gemv_unaligned_columns(const Gemv gemv)
{
    const Sgemm &p = gemv.p;
    auto &all_shared = dynamic_shared<GemvShared<UnalignedColumns<ROWS, STAGED>>>();
    UnalignedColumns<ROWS, STAGED> &shared = all_shared.computing;
    const GemvBlock<ROWS> block(gemv);
    // Two neighbouring threads take two columns and read the same values of A, so that shared
    // memory delivers data to 16 lanes per cycle.
    const int pair_bits = gemv.width_bits > 0 ? 1 : 0;
    const int sharer_bits = GEMV_THREAD_BITS - gemv.width_bits, sharers = 1 << sharer_bits;
    const int lane_bits = sharer_bits < 5 - pair_bits ? sharer_bits : 5 - pair_bits; // in a warp
    const int thread = threadIdx.x, in_pair = thread & ((1 << pair_bits) - 1);
    const int pair = thread >> (sharer_bits + pair_bits);
    const int sharer = (thread >> pair_bits) & (sharers - 1);
    const int own = (pair << pair_bits) + in_pair; // column of the block
    const int64_t col = block.col + own * gemv.column_step;

    float sum[ROWS] = {};
    if (STAGED) {
        shared.pipeline.begin(thread, gemv_threads);
    }
    add_columns<ROWS, STAGED>(p, block, col, sharer, sharers, shared, sum);
    UNROLL(1)
    for (int lanes = 1 << lane_bits >> 1; lanes > 0; lanes /= 2) {
        UNROLL(ROWS)
        for (int r = 0; r < ROWS; ++r) {
            sum[r] += __shfl_down_sync(0xffffffffu, sum[r], lanes << pair_bits);
        }
    }
    if (STAGED) {
        __syncthreads(); // all threads have read the factors
    }
    const int warps_bits = sharer_bits - lane_bits; // log2 of a column's warps
    if ((sharer & ((1 << lane_bits) - 1)) == 0) {
        UNROLL(ROWS)
        for (int r = 0; r < ROWS; ++r) {
            shared.sums[(own << warps_bits) + (sharer >> lane_bits)][r] = sum[r];
        }
    }
    __syncthreads();
    block.store_all(gemv, all_shared, [&](const Place &of) {
        float all = 0.0f;
        UNROLL(1)
        for (int warp = 0; warp < 1 << warps_bits; ++warp) {
            all += shared.sums[(of.col << warps_bits) + warp][of.row];
        }
        return all;
    });
}

/* ------------------------------------------------------------------ on the host */

/* Whether all rows of X, and of the other matrices of its batch, consist of aligned float4s. */
inline bool has_aligned_rows(const Matrix &X)
{
    return is_aligned(X.data) && X.batch_stride % 4 == 0 && X.cols % 4 == 0 &&
           (X.row_stride % 4 == 0 || X.rows == 1);
}

template <int ROWS>
Status launch_gemv_of(const Sgemm &p, const Matrix &addend, int splits, int width,
                      const Launch *where)
{
    const bool by_rows = p.B.row_stride != 1;
    const int least = by_rows ? 4 : 1;
    const int most = by_rows ? GEMV_WIDEST_BY_ROWS(ROWS) : GEMV_WIDEST_BY_COLUMNS;
    int bits = 0;
    while (1 << bits < (width < least ? least : width < most ? width : most)) {
        ++bits;
    }
    const int cols = 1 << bits;
    const int column_step = by_rows ? 1 : GEMV_COLUMN_STEP(p.B.col_stride);
    const int64_t all = p.C.cols, left = all % (cols * column_step);
    const int64_t across =
        all / (cols * column_step) * column_step + (left < column_step ? left : column_step);
    const int64_t groups = (p.C.rows + ROWS - 1) / ROWS;
    const SplitK split_k(p.A.cols / 4, splits);
    Gemv gemv = {p,
                 split_k,
                 static_cast<unsigned>(across),
                 static_cast<unsigned>(groups),
                 bits,
                 column_step,
                 nullptr,
                 nullptr,
                 addend};
    const Matrix &A = p.A, &B = p.B;
    const bool staged = !by_rows && A.col_stride != 1;
    const bool in_float4s =
        !by_rows && !staged && has_aligned_rows(A) && has_aligned_rows(transposed(B));
    const size_t shared = by_rows      ? sizeof(GemvShared<SumsByRows<ROWS>>)
                          : in_float4s ? sizeof(GemvShared<SumsByColumns<ROWS>>)
                          : staged     ? sizeof(GemvShared<UnalignedColumns<ROWS, true>>)
                                       : sizeof(GemvShared<UnalignedColumns<ROWS, false>>);
    KernelSpec spec = {};
    spec.symbol = by_rows      ? "gemv_by_rows"
                  : in_float4s ? "gemv_by_columns"
                               : "gemv_unaligned_columns";
    spec.block_tile[0] = ROWS;
    spec.block_tile[1] = cols;
    spec.block_tile[2] = 4;
    spec.thread_tile[0] = ROWS;
    spec.thread_tile[1] = 4;
    spec.threads[0] = gemv_threads;
    spec.threads[1] = 1;
    spec.dynamic_bytes = static_cast<int>(shared);
    spec.cluster = 1;
    const auto kernel = by_rows      ? gemv_by_rows<ROWS>
                        : in_float4s ? gemv_by_columns<ROWS>
                        : staged     ? gemv_unaligned_columns<ROWS, true>
                                     : gemv_unaligned_columns<ROWS, false>;
    const int64_t blocks = across * groups;
    if (splits == 1) {
        return launch_blocks(kernel, spec, blocks, gemv, where, p.count);
    }
    const size_t bytes =
        static_cast<size_t>(blocks * splits * ((ROWS * cols + 3) / 4)) * sizeof(float4);
    const Workspace<float> memory(bytes, blocks, where);
    gemv.sums = memory.data;
    gemv.arrived = memory.arrived;
    return memory.status.code != STATUS_OK
               ? memory.status
               : launch_blocks(kernel, spec, blocks * splits, gemv, where);
}

/* Launches a product in blocks of `width` columns, a power of two, or of the nearest width that
 * exists. */
inline Status launch_gemv(const Sgemm &p, const Matrix &addend, int splits, int width,
                          const Launch *where)
{
    const auto launch = p.C.rows == 1   ? launch_gemv_of<1>
                        : p.C.rows == 2 ? launch_gemv_of<2>
                        : p.C.rows <= 4 ? launch_gemv_of<4>
                                        : launch_gemv_of<GEMV_ROWS>;
    return launch(p, addend, splits, width, where);
}

} // namespace

#endif
