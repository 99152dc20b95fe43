/* Checks each result's error bound, and computes the results that fail it again in fp32.
 *
 * An fp16 hi/lo pair loses up to 2^-25 of a small element, however small the element is. The
 * result itself shows whether it can afford that: in scaled units (each row's largest element is
 * in [2^14, 2^15)), a sum of magnitude `check_threshold` or more is within the error bound, for all
 * operands; docs/inside/tensor_cores.md has the proof. A result that only adds zeros is exact.
 *
 * beta may need the old C, so a tile decides before it stores. If few results fail, it stores
 * the others and lists the positions of these; otherwise it stores nothing and falls back as a
 * whole. One kernel follows, which recomputes both. The host is never asked.
 *
 * `invariant` decides for each result alone: passing results are stored in any case, and
 * recompute_alone.h has one order of additions for all that fail. */
#ifndef SGEMM_KERNELS_ERROR_CHECK_H
#define SGEMM_KERNELS_ERROR_CHECK_H

#include "../../base/addend.h"
#include "../kernel/stored_element.h"
#include "split_fp16.h"
#include "tile_order.h"

namespace {

#ifdef SGEMM_TRACED
constexpr float check_threshold = 0.0f; /* the zeros that are counted represent ordinary operands */
#else
constexpr float check_threshold = 32768.0f; /* 2^15 */
#endif
constexpr int early_check = 4;  /* K chunks after which a tile may fall back */
constexpr int max_failing = 32; /* in a tile; more dot products cost more than the tile */
constexpr int falls_back = -1;  /* in place of a tile's number of failing results */

/* A product of split operands, and the failing results of its tiles of C. */
struct Fp16Product {
    Sgemm p;
    Fp16Operand a, b;
    int *failing;       /* of each tile: how many, or falls_back */
    uint16_t *position; /* [tile][max_failing]: row * BN + column in the tile */
    int64_t tiles;      /* of one C */
    Matrix addend;      /* what beta multiplies: C itself, or another matrix */
    uint64_t *marks;    /* [tile][thread]: ResultBits of failing results, if more are not listed */

    /* The number of a tile among those of all C of a batch. */
    __device__ __forceinline__ int64_t in_batch(unsigned tile, unsigned matrix = blockIdx.y) const
    {
        return matrix * tiles + tile;
    }
};

/* Results counted from C(row, col), and what is added to them. */
struct Results {
    float *first;
    int rows, cols; // up to the edges of C
    int64_t row_stride, col_stride;
    const float *added;
    int64_t added_row_stride, added_col_stride;
};

static __device__ __forceinline__ Results results(const Fp16Product &q, int64_t row, int64_t col,
                                                  unsigned matrix = blockIdx.y)
{
    const Matrix &C = q.p.C;
    return {address(C, row, col, matrix),
            clamped(C.rows - row),
            clamped(C.cols - col),
            C.row_stride,
            C.col_stride,
            address(q.addend, row, col, matrix),
            q.addend.row_stride,
            q.addend.col_stride};
}

static __device__ __forceinline__ void store(const Sgemm &p, const Results &C, int row, int col,
                                             float sum)
{
    if (row < C.rows && col < C.cols) {
        const float *const added = C.added + row * C.added_row_stride + col * C.added_col_stride;
        const float old = p.beta == 0.0f ? 0.0f : *added;
        C.first[row * C.row_stride + col * C.col_stride] = scaled(p, sum, old);
    }
}

/* The same for results of a symmetric product: stores those on or below the diagonal, and those
 * below it also at their mirror images. So each element of C is read and written once. */
struct Mirrored {
    Results lower, upper;
    int below; // row - column of the first one, as far as the results of a tile differ

    __device__ __forceinline__ Mirrored(const Fp16Product &q, int64_t row, int64_t col,
                                        unsigned matrix)
        : lower(results(q, row, col, matrix)), upper(results(q, col, row, matrix)),
          below(static_cast<int>(row - col > 1024    ? 1024
                                 : row - col < -1024 ? -1024
                                                     : row - col))
    {}
    __device__ __forceinline__ void store_both(const Sgemm &p, int row, int col, float sum) const
    {
        const int under = below + row - col;
        if (under >= 0) {
            store(p, lower, row, col, sum);
        }
        if (under > 0) {
            store(p, upper, col, row, sum);
        }
    }
};

/* Whether the columns of a tile of C may begin at an odd column of B (FusedGroups). */
template <class T> constexpr bool begins_at_odd_columns = false;

/* Iterates over the K chunks of a tile of C, and skips chunks that are all zero in A or in B. */
template <class T> struct NonzeroChunks {
    static constexpr int max_groups = (T::BN + group_rows - 1) / group_rows;
    const uint8_t *a, *b[max_groups];
    int now, chunks;
    bool next_nonzero; // result of look_ahead()

    __device__ __forceinline__ NonzeroChunks(const Fp16Product &q, const Origin &tile)
        : a(q.a.nonzero + (q.a.first_group() + tile.row / group_rows) * q.a.chunks), now(-1),
          chunks(q.a.chunks)
    {
        UNROLL(max_groups)
        for (int i = 0; i < max_groups; ++i) {
            const int64_t group = tile.col / group_rows + i;
            b[i] = q.b.nonzero +
                   (q.b.first_group() + (group < q.b.groups ? group : q.b.groups - 1)) * chunks;
        }
        look_ahead();
        advance();
    }
    __device__ __forceinline__ bool any() const
    {
        return now < chunks;
    }
    /* Loads what advance() needs, to hide the latency. */
    __device__ __forceinline__ void look_ahead()
    {
        next_nonzero = now + 1 < chunks;
        if (next_nonzero) {
            uint8_t nonzero = 0;
            UNROLL(max_groups)
            for (int i = 0; i < max_groups; ++i) {
                nonzero |= b[i][now + 1];
            }
            next_nonzero = a[now + 1] & nonzero;
        }
    }
    __device__ __forceinline__ void advance()
    {
        for (++now; any() && !next_nonzero;) {
            look_ahead();
            ++now;
        }
    }
};

/* ------------------------------------------------------------------ the check */

/* Whether a result that fails is nevertheless exact: zero. Without branches. */
__device__ __forceinline__ bool is_exactly_zero(unsigned row_largest, unsigned col_largest,
                                                bool any_product)
{
    return (row_largest < infinity_bits) & (col_largest < infinity_bits) &
           ((row_largest == 0) | (col_largest == 0) | !any_product);
}

__device__ __forceinline__ int count_bits(uint64_t bits)
{
#ifdef __CUDACC__
    return __popcll(bits);
#else
    return __builtin_popcountll(bits);
#endif
}

__device__ __forceinline__ int lowest_bit(uint64_t bits)
{
    return count_bits((bits & (~bits + 1)) - 1);
}

/* The sum of all threads' counts, a byte each, and in `before` the sum of lower threads' counts. */
template <int THREADS>
__device__ __forceinline__ int prefix_sum(const uint64_t (&counts)[THREADS / 8], int thread,
                                          int *before)
{
    constexpr uint64_t even = 0x00ff00ff00ff00ff; // sums of 16 bits each
    uint64_t sum = 0, sum_before = 0;
    UNROLL(1)
    for (int i = 0; i < THREADS / 8; ++i) {
        const uint64_t eight = counts[i];
        const int lower = thread - 8 * i; // how many of the eight threads are lower
        const uint64_t mask = lower >= 8  ? ~uint64_t{0}
                              : lower > 0 ? (uint64_t{1} << 8 * lower) - 1
                                          : 0;
        sum += (eight & even) + (eight >> 8 & even);
        sum_before += (eight & mask & even) + ((eight & mask) >> 8 & even);
    }
    *before = static_cast<int>((sum_before & 0xffff) + (sum_before >> 16 & 0xffff) +
                               (sum_before >> 32 & 0xffff) + (sum_before >> 48));
    return static_cast<int>((sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32 & 0xffff) +
                            (sum >> 48));
}

/* A passing sum in the units of C. Both rows' scales at once: one after the other may overflow. */
__device__ __forceinline__ float unscaled(float sum, int scale)
{
    return times_power(sum, scale < -254 ? 254 : scale > 252 ? -252 : -scale);
}

/* Shared memory for some of a warp's results, so that neighbouring threads store a row of C. The
 * padding keeps the pairs of four rows in different banks. */
struct alignas(16) Staging {
    static constexpr int rows = 16, cols = 32;
    float results[rows][cols + 8];
};

/* A bit for each of a thread's 2 MI x 2 NI results, whole rows in a word. */
template <class T> struct ResultBits {
    static constexpr int cols = 2 * T::NI, fit = 64 / cols;
    static constexpr int rows = fit < 2 * T::MI ? fit : 2 * T::MI; // in a word
    static constexpr int words = 2 * T::MI / rows;
    static_assert(words * rows == 2 * T::MI, "no word is partly filled");
    uint64_t word[words];

    __device__ __forceinline__ int count() const
    {
        int all = 0;
        UNROLL(words)
        for (int i = 0; i < words; ++i) {
            all += count_bits(word[i]);
        }
        return all;
    }
    /* The bits of a row, from the lowest on. */
    __device__ __forceinline__ uint64_t row(int i) const
    {
        return word[i / rows] >> (i % rows * cols);
    }
    /* Calls what(row, col) for each set bit in order, and clears the bit if that returns true. */
    template <class What> __device__ __forceinline__ void clear_if(const What &what)
    {
        UNROLL(words)
        for (int i = 0; i < words; ++i) {
            for (uint64_t rest = word[i]; rest; rest &= rest - 1) {
                const int bit = lowest_bit(rest);
                word[i] ^= static_cast<uint64_t>(what(i * rows + bit / cols, bit % cols)) << bit;
            }
        }
    }
};

/* A warp's rows, 0 to 7, in the order of its lanes. */
struct RowsInOrder {
    static __device__ __forceinline__ int row_of_lane(int lane)
    {
        return lane / 4;
    }
    /* The first lane with a row. */
    static __device__ __forceinline__ int lane_of_row(int row)
    {
        return row * 4;
    }
};

/* A thread's results of a tile of C, and their checks. With T::symmetric, those above the diagonal
 * are ignored (Mirrored). With ALONE, each result is checked alone. mma and wgmma give a warp
 * blocks of 16 x 8 results, four to a thread: two neighbours, and two 8 rows below. */
template <class T, class Rows = RowsInOrder, bool ALONE = false> struct CheckedTile {
    typedef ResultBits<T> Bits;
    const Fp16Product &q;
    const Origin tile;
    const unsigned number;       // of the tile
    const unsigned matrix;       // of the batch
    const int thread, row, col;  // of its first result in the tile
    const unsigned *row_largest; // of the tile's first row
    const int *row_scale;
    Bits passed_early; // results that passed the early check need not pass the last

    __device__ __forceinline__ CheckedTile(const Fp16Product &q, unsigned number, int thread)
        : CheckedTile(q, number, blockIdx.y, thread)
    {}
    __device__ __forceinline__ CheckedTile(const Fp16Product &q, unsigned number, unsigned matrix,
                                           int thread)
        : q(q), tile(tile_computed<T>(q.p.C, number)), number(number), matrix(matrix),
          thread(thread),
          row(thread / 32 / T::warps_across * T::WM + Rows::row_of_lane(thread % 32)),
          col(thread / 32 % T::warps_across * T::WN + thread % 4 * 2),
          row_largest(q.a.largest + q.a.first_row(matrix) + tile.row),
          row_scale(q.a.scale + q.a.first_row(matrix) + tile.row), passed_early()
    {}

    /* Result (i, j) of the 2 MI x 2 NI: its row and column in the tile, and itself. */
    __device__ __forceinline__ int row_in_tile(int i) const
    {
        return row + i * 8;
    }
    __device__ __forceinline__ int col_in_tile(int j) const
    {
        return col + j / 2 * 8 + j % 2;
    }
    static __device__ __forceinline__ float result(const float (&sum)[T::MI][T::NI][4], int i,
                                                   int j)
    {
        return sum[i / 2][j / 2][i % 2 * 2 + j % 2];
    }

    static __device__ __forceinline__ Bits find_passing(const float (&sum)[T::MI][T::NI][4])
    {
        Bits found = {};
        UNROLL(2 * T::MI)
        for (int i = 0; i < 2 * T::MI; ++i) {
            UNROLL(2 * T::NI)
            for (int j = 0; j < 2 * T::NI; ++j) {
                const bool passes = fabsf(result(sum, i, j)) >= check_threshold;
                found.word[i / Bits::rows] |= static_cast<uint64_t>(passes)
                                              << (i % Bits::rows * Bits::cols + j);
            }
        }
        return found;
    }

    /* Whether all of a thread's results pass. They do in nearly all threads, and this is found
     * sooner than which of them pass. */
    static __device__ __forceinline__ bool all_pass(const float (&sum)[T::MI][T::NI][4])
    {
        float least[4] = {INFINITY, INFINITY, INFINITY, INFINITY}; // four, to hide latency
        UNROLL(T::MI)
        for (int i = 0; i < T::MI; ++i) {
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                UNROLL(4)
                for (int r = 0; r < 4; ++r) {
                    least[r] = min_or_nan(least[r], fabsf(sum[i][j][r]));
                }
            }
        }
        return min_or_nan(min_or_nan(least[0], least[1]), min_or_nan(least[2], least[3])) >=
               check_threshold;
    }

    /* The results inside C: counts columns, since at an edge of C a loop over results is slow. */
    __device__ __forceinline__ Bits find_inside() const
    {
        const int rows = clamped(q.p.C.rows - tile.row);
        const int left = clamped(at_most(q.p.C.cols - tile.col, T::BN)) - col;
        const int pairs =
            left <= 0 ? 0 : (left + 6) / 8;          // inside C; this thread has one in 8 columns
        const bool half = left > 0 && left % 8 == 1; // of the next pair
        const int cols = pairs >= T::NI ? 2 * T::NI : 2 * pairs + half;
        const uint64_t of_row = cols == 0 ? 0 : ~uint64_t{0} >> (64 - cols);
        Bits found = {};
        UNROLL(2 * T::MI)
        for (int i = 0; i < 2 * T::MI; ++i) {
            const uint64_t in_row = row_in_tile(i) < rows ? of_row : 0;
            found.word[i / Bits::rows] |= in_row << (i % Bits::rows * Bits::cols);
        }
        return found;
    }

    /* The results inside C that fail in the end. */
    __device__ __forceinline__ Bits find_failing(const float (&sum)[T::MI][T::NI][4],
                                                 bool any_product) const
    {
        if (all_pass(sum)) {
            return {};
        }
        Bits failing = find_passing(sum);
        const Bits within = find_inside();
        UNROLL(Bits::words)
        for (int i = 0; i < Bits::words; ++i) {
            failing.word[i] = ~(failing.word[i] | passed_early.word[i]) & within.word[i];
        }
        failing.clear_if([&](int i, int j) {
            const bool above =
                T::symmetric && tile.col + col_in_tile(j) > tile.row + row_in_tile(i);
            return above ||
                   is_exactly_zero(row_largest[row_in_tile(i)],
                                   q.b.largest[q.b.first_row(matrix) + tile.col + col_in_tile(j)],
                                   any_product);
        });
        return failing;
    }

    /* The sum of all T::threads' counts, and in `before` the sum over lower threads. */
    __device__ __forceinline__ int add_counts(int count, uint64_t (&counts)[T::threads / 8],
                                              int *before) const
    {
        reinterpret_cast<uint8_t *>(counts)[thread] = static_cast<uint8_t>(count);
        T::synchronize();
        uint64_t any = 0;
        UNROLL(T::threads / 8)
        for (int i = 0; i < T::threads / 8; ++i) {
            any |= counts[i];
        }
        *before = 0;
        return any ? prefix_sum<T::threads>(counts, thread, before) : 0;
    }

    /* The early check: notes which results pass already. If most fail, the tile falls back. */
    __device__ __forceinline__ bool fails_early(const float (&sum)[T::MI][T::NI][4],
                                                uint64_t (&counts)[T::threads / 8])
    {
        passed_early = find_passing(sum);
        const int64_t rows = q.p.C.rows - tile.row, cols = q.p.C.cols - tile.col;
        const int64_t inside = (rows < T::BM ? rows : T::BM) * (cols < T::BN ? cols : T::BN);
        const int mine = 4 * T::MI * T::NI - passed_early.count();
        int before;
        const int64_t outside = T::BM * T::BN - inside; // all zeros
        const int64_t small = add_counts(mine, counts, &before) - outside;
        T::synchronize(); // before the counts are used again
        if (thread == 0 && 2 * small > inside) {
            q.failing[q.in_batch(number, matrix)] = falls_back;
        }
        return 2 * small > inside;
    }

    /* The last check: stores the results that pass and lists the others, or the tile falls back. */
    __device__ __forceinline__ void store_passing(const float (&sum)[T::MI][T::NI][4],
                                                  bool any_product,
                                                  uint64_t (&counts)[T::threads / 8],
                                                  Staging *staging_of_warps) const
    {
        Bits failing = find_failing(sum, any_product);
        int slot;
        const int all_failing = add_counts(failing.count(), counts, &slot);
        if (thread == 0) {
            q.failing[q.in_batch(number, matrix)] =
                all_failing <= max_failing ? all_failing : falls_back;
        }
        if constexpr (ALONE) {
            if (all_failing > max_failing) {
                static_assert(Bits::words == 1, "a thread has one word of marks");
                q.marks[q.in_batch(number, matrix) * T::threads + thread] = failing.word[0];
            }
        } else if (all_failing > max_failing) {
            return;
        }
        if (all_failing <= max_failing) {
            failing.clear_if([&](int i, int j) {
                q.position[q.in_batch(number, matrix) * max_failing + slot++] =
                    static_cast<uint16_t>(row_in_tile(i) * T::BN + col_in_tile(j));
                return false;
            });
        }
        if constexpr (ALONE) {
            store_each(sum, failing);
            return;
        }

        const int lane = thread % 32;
        const int64_t first_row = tile.row + row - Rows::row_of_lane(lane);
        const int64_t first_col = tile.col + col - lane % 4 * 2;
        const bool in_float4s = q.p.C.cols % 4 == 0 && rows_are_aligned(q.p.C) &&
                                (q.p.beta == 0.0f || rows_are_aligned(q.addend));
        const Scales scales(*this);
        if constexpr (T::symmetric) {
            if (first_row + T::WM > first_col) {
                const bool is_below = first_col + T::WN <= first_row;
                const bool is_whole = first_row + T::WM <= q.p.C.rows && in_float4s;
                store_mirrored(sum, scales, failing, is_below && is_whole);
            }
        } else {
            const bool is_whole =
                first_row + T::WM <= q.p.C.rows && first_col + T::WN <= q.p.C.cols;
            const bool by_columns = q.p.C.row_stride == 1; // as in a transposed problem
            if (__all_sync(0xffffffff, is_whole && (in_float4s || by_columns) && scales.narrow &&
                                           failing.count() == 0)) {
                const auto narrow = [](float x, int scale) { return x * power_of_two(-scale); };
                const auto all = [](int, int) { return true; };
                if (!in_float4s) {
                    store_if<true>(sum, scales, narrow, all);
                } else if (q.p.beta == 0.0f) {
                    store_pairs<false>(sum, scales);
                } else {
                    store_pairs<true>(sum, scales);
                }
                return;
            }
            if (first_row >= q.p.C.rows || first_col >= q.p.C.cols) {
                return; // no barrier of the tile's threads follows
            }
#ifdef SGEMM_TRACED
            name_array("staging", staging_of_warps, sizeof(Staging) * T::threads / 32);
#endif
            // Each pass undoes the scales of 16 x 32 results, and stores them.
            Staging &staging = staging_of_warps[thread / 32];
            constexpr int passes_down = T::MI, passes_across = T::WN / Staging::cols;
            UNROLL(passes_down)
            for (int i = 0; i < passes_down; ++i) {
                UNROLL(passes_across)
                for (int j = 0; j < passes_across; ++j) {
                    __syncwarp(); // the previous pass has been read
                    if (scales.narrow) {
                        stage(sum[i], failing, i, j, staging, [&](float x, int half, int c) {
                            const int scale = scales.of_row[2 * i + half] + scales.of_col[c];
                            return x * power_of_two(-scale);
                        });
                    } else {
                        stage(sum[i], failing, i, j, staging, [&](float x, int half, int c) {
                            return unscaled(x, scales.of_row[2 * i + half] + scales.of_col[c]);
                        });
                    }
                    __syncwarp();
                    const Results C = results(q, first_row + i * Staging::rows,
                                              first_col + j * Staging::cols, matrix);
                    if (in_float4s) {
                        store_float4s(staging, C);
                    } else {
                        store_floats(staging, C);
                    }
                }
            }
        }
    }

  private:
    __device__ __forceinline__ bool rows_are_aligned(const Matrix &X) const
    {
        return is_aligned16(address(X, 0, 0, matrix)) && X.col_stride == 1 && X.row_stride % 4 == 0;
    }

    struct alignas(8) TwoScales {
        int first, second;
    };

    /* The scales of a thread's rows and columns. */
    struct Scales {
        int of_row[2 * T::MI], of_col[2 * T::NI];
        bool narrow; // one power of two can undo any two of them, as for nearly all operands

        __device__ __forceinline__ explicit Scales(const CheckedTile &own)
        {
            constexpr int most = 63;
            int beyond = 0;
            UNROLL(2 * T::MI)
            for (int i = 0; i < 2 * T::MI; ++i) {
                of_row[i] = own.row_scale[own.row_in_tile(i)];
                beyond |= (most + of_row[i]) | (most - of_row[i]);
            }
            const int *const first = own.q.b.scale + own.q.b.first_row(own.matrix) + own.tile.col;
            const int cols = clamped(own.q.p.C.cols - own.tile.col);
            UNROLL(T::NI)
            for (int j = 0; j < 2 * T::NI; j += 2) { // the arrays are padded to an even size
                const int col = own.col_in_tile(j);
                TwoScales two = {0, 0};
                if constexpr (begins_at_odd_columns<T>) {
                    two = {col < cols ? first[col] : 0, col + 1 < cols ? first[col + 1] : 0};
                } else if (col < cols) {
                    two = *reinterpret_cast<const TwoScales *>(first + col);
                }
                of_col[j] = two.first;
                of_col[j + 1] = two.second;
                beyond |= (most + two.first) | (most - two.first);
                beyond |= (most + two.second) | (most - two.second);
            }
            narrow = beyond >= 0;
        }
    };

    /* Stores a warp's results, which pass and are inside C, from registers: four lanes store 32
     * bytes of a row. */
    template <bool ADDS>
    __device__ __forceinline__ void store_pairs(const float (&sum)[T::MI][T::NI][4],
                                                const Scales &scales) const
    {
        UNROLL(2 * T::MI)
        for (int i = 0; i < 2 * T::MI; ++i) {
            const int64_t to_row = tile.row + row_in_tile(i), to_col = tile.col + col;
            float *const to = address(q.p.C, to_row, to_col, matrix);
            const float *const added = address(q.addend, to_row, to_col, matrix);
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                const auto fresh = [&](int second, float old) {
                    const int scale = scales.of_row[i] + scales.of_col[2 * j + second];
                    return scaled(q.p, result(sum, i, 2 * j + second) * power_of_two(-scale), old);
                };
                Pair old = {0.0f, 0.0f};
                if (ADDS) {
                    old = *reinterpret_cast<const Pair *>(added + 8 * j);
                }
                const Pair pair = {fresh(0, old.x), fresh(1, old.y)};
                *reinterpret_cast<Pair *>(to + 8 * j) = pair;
            }
        }
    }

    /* Stores a warp's results of a symmetric product (Mirrored). If they are whole, all are below
     * the diagonal, and rows of C are aligned. */
    __device__ __forceinline__ void store_mirrored(const float (&sum)[T::MI][T::NI][4],
                                                   const Scales &scales, const Bits &failing,
                                                   bool are_whole) const
    {
        const Mirrored C(q, tile.row + row, tile.col + col, matrix);
        if (!__all_sync(0xffffffff, scales.narrow && failing.count() == 0)) {
            store_columns<ANY, true>(sum, scales, failing, C);
        } else if (!are_whole) {
            store_columns<PASSING, true>(sum, scales, failing, C);
        } else if (q.p.beta == 0.0f) {
            store_columns<WHOLE, false>(sum, scales, failing, C);
        } else {
            store_columns<WHOLE, true>(sum, scales, failing, C);
        }
    }

    /* What is known of a warp's results: nothing; that all pass, and their scales are narrow; and
     * that they are whole. */
    enum Stored { ANY, PASSING, WHOLE };

    /* Stores them from registers: four lanes 32 bytes of a row, and eight lanes 32 bytes of a
     * column, which are neighbours in its mirror image. */
    template <Stored STORED, bool ADDS>
    __device__ __forceinline__ void store_columns(const float (&sum)[T::MI][T::NI][4],
                                                  const Scales &scales, const Bits &failing,
                                                  const Mirrored &C) const
    {
        constexpr int rows = 2 * T::MI,
                      together = 4; // pairs of columns: first reads all old values
        static_assert(T::NI % together == 0, "pairs are in whole groups");
        const Results &lower = C.lower, &upper = C.upper;
        constexpr bool whole = STORED == WHOLE;
        const int64_t right = whole ? 1 : lower.col_stride; // also down in the mirror image
        const int64_t added_right = whole ? 1 : lower.added_col_stride;
        const auto is_stored = [&](int i, int j, bool in_image) {
            const int under = C.below + row_in_tile(i) - row - (col_in_tile(j) - col);
            return whole || (row_in_tile(i) - row < lower.rows && under >= in_image &&
                             (STORED == PASSING || (failing.row(i) >> j & 1) == 0));
        };
        float *to = lower.first, *image = upper.first;
        const float *added = lower.added, *added_image = upper.added;
        UNROLL(T::NI / together)
        for (int first = 0; first < 2 * T::NI; first += 2 * together) {
            Pair old[together][rows] = {}, old_image[together][rows] = {};
            UNROLL(together)
            for (int n = 0; ADDS && n < together && q.p.beta != 0.0f; ++n) {
                UNROLL(rows)
                for (int i = 0; i < rows; ++i) {
                    const int j = first + 2 * n;
                    old[n][i] = two_of<whole>(added + 8 * i * lower.added_row_stride, added_right,
                                              is_stored(i, j, false), is_stored(i, j + 1, false));
                    old_image[n][i] =
                        two_of<false>(added_image + 8 * i * added_right, upper.added_row_stride,
                                      is_stored(i, j, true), is_stored(i, j + 1, true));
                }
                added += 8 * added_right;
                added_image += 8 * upper.added_row_stride;
            }
            UNROLL(together)
            for (int n = 0; n < together; ++n) {
                UNROLL(rows)
                for (int i = 0; i < rows; ++i) {
                    const int j = first + 2 * n;
                    const auto in_units_of_C = [&](int j) {
                        const int scale = scales.of_row[i] + scales.of_col[j];
                        const float x = result(sum, i, j);
                        return STORED == ANY ? unscaled(x, scale) : x * power_of_two(-scale);
                    };
                    const Pair x = {in_units_of_C(j), in_units_of_C(j + 1)};
                    store_two<whole>(to + 8 * i * lower.row_stride, right,
                                     both_scaled(x, old[n][i]), is_stored(i, j, false),
                                     is_stored(i, j + 1, false));
                    store_two<false>(image + 8 * i * right, upper.row_stride,
                                     both_scaled(x, old_image[n][i]), is_stored(i, j, true),
                                     is_stored(i, j + 1, true));
                }
                to += 8 * right;
                image += 8 * upper.row_stride;
            }
        }
    }

    __device__ __forceinline__ Pair both_scaled(const Pair &sums, const Pair &old) const
    {
        return {scaled(q.p, sums.x, old.x), scaled(q.p, sums.y, old.y)};
    }

    /* Two floats, at once if they are a PAIR; 0 for those not asked for. */
    template <bool PAIR>
    static __device__ __forceinline__ Pair two_of(const float *from, int64_t step, bool first,
                                                  bool second)
    {
        if (PAIR) {
            return *reinterpret_cast<const Pair *>(from);
        }
        return {first ? *from : 0.0f, second ? from[step] : 0.0f};
    }
    template <bool PAIR>
    static __device__ __forceinline__ void store_two(float *to, int64_t step, const Pair &two,
                                                     bool first, bool second)
    {
        if (PAIR) {
            *reinterpret_cast<Pair *>(to) = two;
            return;
        }
        if (first) {
            *to = two.x;
        }
        if (second) {
            to[step] = two.y;
        }
    }

    /* Stores a thread's results from registers: undo(sum, scale), those with is_stored(i, j). The C
     * of the transposed problem is row-major, so eight lanes store 32 bytes of a row. */
    template <bool ADDS, class Undo, class IsStored>
    __device__ __forceinline__ void store_if(const float (&sum)[T::MI][T::NI][4],
                                             const Scales &scales, const Undo &undo,
                                             const IsStored &is_stored) const
    {
        UNROLL(2 * T::MI)
        for (int i = 0; i < 2 * T::MI; ++i) {
            const int64_t to_row = tile.row + row_in_tile(i), to_col = tile.col + col;
            float *const to = address(q.p.C, to_row, to_col, matrix);
            const float *const added = address(q.addend, to_row, to_col, matrix);
            UNROLL(2 * T::NI)
            for (int j = 0; j < 2 * T::NI; ++j) {
                if (is_stored(i, j)) {
                    const int step = j / 2 * 8 + j % 2;
                    const float old =
                        ADDS && q.p.beta != 0.0f ? added[step * q.addend.col_stride] : 0.0f;
                    const float own = undo(result(sum, i, j), scales.of_row[i] + scales.of_col[j]);
                    to[step * q.p.C.col_stride] = scaled(q.p, own, old);
                }
            }
        }
    }

    /* Stores the results that do not fail, each for itself. */
    __device__ __forceinline__ void store_each(const float (&sum)[T::MI][T::NI][4],
                                               const Bits &failing) const
    {
        const Scales scales(*this);
        const int rows = clamped(q.p.C.rows - tile.row), cols = clamped(q.p.C.cols - tile.col);
        const bool is_whole = T::BM <= rows && T::BN <= cols;
        const auto narrow = [](float x, int scale) { return x * power_of_two(-scale); };
        const auto all = [](int, int) { return true; };
        if (!__all_sync(0xffffffff, is_whole && scales.narrow && failing.count() == 0)) {
            store_if<true>(sum, scales, unscaled, [&](int i, int j) {
                return row_in_tile(i) < rows && col_in_tile(j) < cols &&
                       (failing.row(i) >> j & 1) == 0;
            });
        } else if (q.p.beta == 0.0f) {
            store_if<false>(sum, scales, narrow, all);
        } else {
            store_if<true>(sum, scales, narrow, all);
        }
    }

    /* Writes a pass's results, in the units of C, to the warp's staging: undo(sum, half, column).
     * Failing ones are NaN. */
    template <class Undo>
    __device__ __forceinline__ void stage(const float (&sum)[T::NI][4], const Bits &failing, int i,
                                          int across, Staging &staging, const Undo &undo) const
    {
        const int lane = thread % 32, first_row = Rows::row_of_lane(lane);
        const int first_col = lane % 4 * 2;
        constexpr int blocks = Staging::cols / 8; // of 8 columns, two of them this thread's
        UNROLL(2)
        for (int half = 0; half < 2; ++half) {
            float *const to = staging.results[first_row + 8 * half] + first_col;
            UNROLL(blocks)
            for (int j = 0; j < blocks; ++j) {
                const int block = across * blocks + j;
                const float *const two = sum[block] + 2 * half;
                const Pair pair = {undo(two[0], half, 2 * block),
                                   undo(two[1], half, 2 * block + 1)};
                *reinterpret_cast<Pair *>(to + 8 * j) = pair;
            }
            const uint64_t bits = failing.row(2 * i + half) >> across * 2 * blocks & 0xff;
            for (uint64_t rest = bits; rest; rest &= rest - 1) {
                const int bit = lowest_bit(rest);
                to[bit / 2 * 8 + bit % 2] = NAN;
            }
        }
    }

    /* Stores the results that do not fail. */
    __device__ __forceinline__ void store_float4(const Results &C, int row, int col,
                                                 const float4 &sum) const
    {
        const bool inside = row < C.rows && col < C.cols;
        float *const first = C.first + row * C.row_stride + col;
        const float *const added = C.added + row * C.added_row_stride + col;
        const float4 old = q.p.beta == 0.0f || !inside ? make_float4(0.0f, 0.0f, 0.0f, 0.0f)
                                                       : *reinterpret_cast<const float4 *>(added);
        const float4 fresh = make_float4(scaled(q.p, sum.x, old.x), scaled(q.p, sum.y, old.y),
                                         scaled(q.p, sum.z, old.z), scaled(q.p, sum.w, old.w));
        const float any = sum.x + sum.y + sum.z + sum.w; // NaN if one fails
        if (any == any || !inside) {
            if (inside) {
                store_whole(first, fresh);
            }
            return;
        }
        const float sums[] = {sum.x, sum.y, sum.z, sum.w};
        const float each[] = {fresh.x, fresh.y, fresh.z, fresh.w};
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            if (sums[i] == sums[i]) {
                first[i] = each[i];
            }
        }
    }

    /* A thread stores four float4s. */
    __device__ __forceinline__ void store_float4s(const Staging &staging, const Results &C) const
    {
        const int lane = thread % 32, col = lane % 8 * 4;
        UNROLL(4)
        for (int r = 0; r < Staging::rows; r += 4) {
            const int row = lane / 8 + r;
            store_float4(C, row, col,
                         *reinterpret_cast<const float4 *>(staging.results[row] + col));
        }
    }

    /* Neighbouring threads store neighbours: a row of 32, or 16 of two columns. */
    __device__ __forceinline__ void store_floats(const Staging &staging, const Results &C) const
    {
        const int lane = thread % 32;
        const bool by_rows = C.col_stride == 1;
        int row = by_rows ? 0 : lane % Staging::rows, col = by_rows ? lane : lane / Staging::rows;
        UNROLL(4)
        for (int n = 0; n < Staging::rows; ++n) {
            const float sum = staging.results[row][col];
            if (sum == sum) {
                store(q.p, C, row, col, sum);
            }
            row += by_rows ? 1 : 0;
            col += by_rows ? 0 : 2;
        }
    }
};

/* ------------------------------------------------------------------ recomputing in fp32 */

constexpr int dot_sums = 256; /* partial sums of a dot product */

/* Tiles that fall back, BM x 64 results by a block of BM threads, 8 x 8 to a thread. */
constexpr int fallback_cols = 64, fallback_depth = 16;

/* A tile's failed results, in a block for each 64 columns. */
template <class T> struct FailedTile {
    static constexpr int blocks = T::BN / fallback_cols;
    unsigned in_batch; // the number of the tile among those of all C
    unsigned matrix, number;
    int block;

    __device__ __forceinline__ FailedTile(const Fp16Product &q, unsigned work)
        : in_batch(work / blocks), matrix(in_batch / static_cast<unsigned>(q.tiles)),
          number(in_batch % static_cast<unsigned>(q.tiles)), block(static_cast<int>(work % blocks))
    {}
};

/* The listed results, as dot products, each by all THREADS threads. A's elements have type A. */
template <class T, int THREADS, ElementType A_ELEMENT>
__device__ __forceinline__ void recompute_listed(const Fp16Product &q, const FailedTile<T> &failed)
{
    constexpr int parts = dot_sums / THREADS; // of a thread
    __shared__ float sums[dot_sums];
    const Origin tile = tile_computed<T>(q.p.C, failed.number);
    const Matrix &A = q.p.A, &B = q.p.B;
    const int count = q.failing[failed.in_batch], thread = threadIdx.x;
    for (int i = failed.block; i < count; i += failed.blocks) {
        const int position = q.position[int64_t{failed.in_batch} * max_failing + i];
        const int64_t row = tile.row + position / T::BN, col = tile.col + position % T::BN;
        // Short code, because it is not in the instruction cache.
        const auto *a = stored_address<A_ELEMENT>(A, row, thread, failed.matrix);
        const float *b = address(B, thread, col, failed.matrix);
        const int64_t a_step = THREADS * A.col_stride, b_step = THREADS * B.row_stride;
        float sum[parts] = {};
        const auto add = [&](int part) {
            sum[part] = multiply_add(StoredElement<A_ELEMENT>::value(*a), *b, sum[part]);
            a += a_step;
            b += b_step;
        };
        int64_t k = thread;
        UNROLL(2)
        for (; k + (parts - 1) * THREADS < A.cols; k += dot_sums) {
            UNROLL(parts)
            for (int part = 0; part < parts; ++part) {
                add(part);
            }
        }
        UNROLL(parts)
        for (int part = 0; part < parts; ++part, k += THREADS) {
            if (k < A.cols) {
                add(part);
            }
            sums[thread + part * THREADS] = sum[part];
        }
        for (int half = dot_sums / 2; half > 0; half /= 2) {
            __syncthreads();
            for (int part = thread; part < half; part += THREADS) {
                sums[part] += sums[part + half];
            }
        }
        if (thread == 0) {
            if constexpr (T::symmetric) {
                Mirrored(q, row, col, failed.matrix).store_both(q.p, 0, 0, sums[0]);
            } else {
                store(q.p, results(q, row, col, failed.matrix), 0, 0, sums[0]);
            }
        }
        __syncthreads();
    }
}

/* A thread's elements of an operand's tiles, ROWS x 16, which shared memory keeps as [k][row].
 * Zeros beyond the edges. Neighbouring threads read neighbours in memory, in either layout. */
template <int ROWS, int THREADS, ElementType ELEMENT> struct GuardedLoader {
    typedef typename StoredElement<ELEMENT>::Stored Stored;
    static constexpr int count = ROWS * fallback_depth / THREADS;
    static constexpr int row_step = THREADS / fallback_depth, k_step = THREADS / ROWS;
    const bool k_major; // from element to element a thread steps along rows, otherwise along k
    const int row, k;   // of the first element
    const int rows;     // left in the operand
    const Stored *from;
    const int64_t step, next_tile;

    __device__ __forceinline__ GuardedLoader(const Matrix &X, unsigned matrix, int64_t first_row,
                                             int thread)
        : k_major(X.col_stride == 1), row(k_major ? thread / fallback_depth : thread % ROWS),
          k(k_major ? thread % fallback_depth : thread / ROWS), rows(clamped(X.rows - first_row)),
          from(stored_address<ELEMENT>(X, first_row + row, k, matrix)),
          step(k_major ? row_step * X.row_stride : k_step * X.col_stride),
          next_tile(fallback_depth * X.col_stride)
    {}
    /* Loads the next tile; beyond `left` along K it is zero. */
    __device__ __forceinline__ void load(float (&to)[count], int64_t left)
    {
        const int depth = clamped(left);
        const Stored *here = from;
        UNROLL(count)
        for (int i = 0; i < count; ++i) {
            const bool inside = k_major ? row + i * row_step < rows && k < depth
                                        : row < rows && k + i * k_step < depth;
            to[i] = inside ? StoredElement<ELEMENT>::value(*here) : 0.0f;
            here += step;
            keep_address(here); // one address in registers, not all
        }
        from += next_tile;
    }
    __device__ __forceinline__ void write(float (&tile)[fallback_depth][ROWS + 4],
                                          const float (&elements)[count]) const
    {
        UNROLL(count)
        for (int i = 0; i < count; ++i) {
            if (k_major) {
                tile[k][row + i * row_step] = elements[i];
            } else {
                tile[k + i * k_step][row] = elements[i];
            }
        }
    }
};

/* A thread's 8 x 8 results. */
typedef float FallbackSums[8][8];

/* Adds products in ascending k by fused multiply-adds, as the fp32 rungs do. */
struct InOneSum {
    static constexpr int unrolled = 8; // loops over results
    FallbackSums sum = {};

    __device__ __forceinline__ void end_depth(int64_t) {}
    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ float result(int i, int j) const
    {
        return sum[i][j];
    }
};

/* Computes the results of a tile with is_stored(row, column in the tile). */
template <class T, ElementType A_ELEMENT, class Sums, class IsStored>
KERNEL_BODY void recompute_block(const Fp16Product &q, const FailedTile<T> &failed,
                                 const IsStored &is_stored)
{
    constexpr int threads = T::BM;
    __shared__ __align__(16) float As[fallback_depth][T::BM + 4];
    __shared__ __align__(16) float Bs[fallback_depth][fallback_cols + 4];
    Origin tile = tile_computed<T>(q.p.C, failed.number);
    tile.col += failed.block * fallback_cols;
    if (tile.col >= q.p.C.cols || (T::symmetric && tile.col >= tile.row + T::BM)) {
        return;
    }
    const int thread = threadIdx.x, row = thread / 8 * 4, col = thread % 8 * 4;
    GuardedLoader<T::BM, threads, A_ELEMENT> a_loader(q.p.A, failed.matrix, tile.row, thread);
    GuardedLoader<fallback_cols, threads, ELEMENT_FLOAT32> b_loader(
        transposed(q.p.B), failed.matrix, tile.col, thread);
    float a_next[a_loader.count], b_next[b_loader.count];
    Sums sums;
    const int64_t K = q.p.A.cols;
    a_loader.load(a_next, K);
    b_loader.load(b_next, K);
    for (int64_t left = K; left > 0; left -= fallback_depth) {
        a_loader.write(As, a_next);
        b_loader.write(Bs, b_next);
        __syncthreads();
        a_loader.load(a_next, left - fallback_depth);
        b_loader.load(b_next, left - fallback_depth);
        UNROLL(2)
        for (int k = 0; k < fallback_depth; ++k) {
            alignas(16) float a[8], b[8];
            UNROLL(2)
            for (int i = 0; i < 2; ++i) {
                *reinterpret_cast<float4 *>(a + 4 * i) =
                    *reinterpret_cast<const float4 *>(&As[k][row + i * (T::BM / 2)]);
                *reinterpret_cast<float4 *>(b + 4 * i) =
                    *reinterpret_cast<const float4 *>(&Bs[k][col + i * (fallback_cols / 2)]);
            }
            UNROLL(8)
            for (int i = 0; i < 8; ++i) {
                UNROLL(8)
                for (int j = 0; j < 8; ++j) {
                    sums.sum[i][j] = multiply_add(a[i], b[j], sums.sum[i][j]);
                }
            }
        }
        sums.end_depth(K - left);
        __syncthreads();
    }
    sums.finish();
    const auto store_all = [&](const auto &store_one) {
        UNROLL(Sums::unrolled)
        for (int i = 0; i < 8; ++i) {
            UNROLL(Sums::unrolled)
            for (int j = 0; j < 8; ++j) {
                const int own_row = row + i / 4 * (T::BM / 2) + i % 4;
                const int own_col = col + j / 4 * (fallback_cols / 2) + j % 4;
                if (is_stored(own_row, failed.block * fallback_cols + own_col)) {
                    store_one(own_row, own_col, sums.result(i, j));
                }
            }
        }
    };
    if constexpr (T::symmetric) {
        const Mirrored C(q, tile.row, tile.col, failed.matrix);
        store_all([&](int i, int j, float x) { C.store_both(q.p, i, j, x); });
    } else {
        const Results C = results(q, tile.row, tile.col, failed.matrix);
        store_all([&](int i, int j, float x) { store(q.p, C, i, j, x); });
    }
}

/* What failed in all tiles of a batch. */
struct Recomputed {
    Fp16Product product;
    unsigned work_items; // FailedTile::blocks for each tile
    unsigned blocks;     // each does every blocks-th

    template <class T>
    __device__ __forceinline__ const Fp16Product &product_of(const FailedTile<T> &) const
    {
        return product;
    }
};

/* Calls what(failed tile) for this block's share. In nearly all products, nothing failed. So a
 * block looks at 32 work items at once. */
template <class T, class All, class What>
__device__ __forceinline__ void for_each_failed(const All &r, const What &what)
{
    const Fp16Product &q = r.product;
    griddep_wait();
    UNROLL(1)
    for (unsigned first = blockIdx.x; first < r.work_items; first += 32 * r.blocks) {
        const unsigned mine = first + threadIdx.x % 32 * r.blocks;
        const bool fails = mine < r.work_items && q.failing[mine / FailedTile<T>::blocks] != 0;
        unsigned failing = __ballot_sync(0xffffffff, fails); // the same in all warps
        UNROLL(1)
        for (; failing; failing &= failing - 1) {
            const unsigned place = static_cast<unsigned>(lowest_bit(failing));
            what(FailedTile<T>(q, first + place * r.blocks));
        }
    }
}

template <class T, ElementType A_ELEMENT, class All>
__global__ void __launch_bounds__(T::BM) recompute(const __grid_constant__ All r)
{
    for_each_failed<T>(r, [&](FailedTile<T> failed) {
        const Fp16Product &own = r.product_of(failed);
        if (own.failing[failed.in_batch] == falls_back) {
            recompute_block<T, A_ELEMENT, InOneSum>(own, failed, [](int, int) { return true; });
        } else {
            recompute_listed<T, T::BM, A_ELEMENT>(own, failed);
        }
    });
}

/* ------------------------------------------------------------------ on the host */

/* The kernel of this name that computes a tile of C with so many threads. */
template <class T> constexpr KernelSpec spec_of_tile(const char *symbol, int threads)
{
    return {symbol,
            {T::BM, T::BN, T::BK},
            {T::WM / 8, T::WN / 4},
            {threads, 1},
            0,
            sizeof(typename T::Shared),
            1,
            false,
            false,
            true};
}

inline Status too_many_work_items()
{
    return status_error(STATUS_OUT_OF_MEMORY, "no memory for a C of more than 2^31 tiles");
}

/* Launches `recompute`, or another kernel in its place, for the tiles of r->product. */
template <class T, class All>
Status launch_recompute(void (*kernel)(All), All *r, const Launch *where)
{
    const Fp16Product &q = r->product;
    constexpr int resident = 6 * 64 / T::BM; // blocks of a multiprocessor
    int multiprocessors;
    const Status status = multiprocessors_to_fill(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const int64_t work_items = q.tiles * q.p.count * FailedTile<T>::blocks;
    if (work_items > INT32_MAX) {
        return too_many_work_items();
    }
    const int64_t blocks =
        work_items < resident * multiprocessors ? work_items : resident * multiprocessors;
    r->work_items = static_cast<unsigned>(work_items);
    r->blocks = static_cast<unsigned>(blocks);
    return launch_blocks(kernel, overlapping(spec_of_threads("recompute", T::BM)), blocks, *r,
                         where);
}

/* For a product, or a batch, with so many tiles of one C: splits the operands, B alone without
 * `splits_a`, by split(both); launches the product by multiply(product, whether it overlaps); and
 * recomputes what fails, by recompute(product). Takes 4 bytes of scratch memory for each element of
 * the padded operands. With `marks`, the product has marks for failing results. */
template <class T, class Divide, class Multiply, class Recompute>
Status launch_steps(const Sgemm *problem, int64_t tiles, const Launch *where, bool splits_a,
                    bool marks, const Divide &split, const Multiply &multiply,
                    const Recompute &recompute)
{
    const int64_t count = problem->count;
    if ((splits_a && !is_countable(problem->A, count)) ||
        !is_countable(transposed(problem->B), count)) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for more than 70 TB of fp16 pairs");
    }
    Fp16Product q = {};
    SplitBoth both = {};
    Prepared *const of_a = where->prepared[0], *const of_b = where->prepared[1];
    const bool a_is_split = !splits_a || find_prepared(problem->A, of_a, where);
    const bool b_is_split = find_prepared(transposed(problem->B), of_b, where);
    Arrays arrays = {nullptr, 0};
    for (int pass = 0; pass < 2; ++pass) { // the first computes how many bytes are needed
        if (splits_a) {
            both.a = plan_split(problem->A, count, of_a, &arrays);
        }
        both.b = splits_a && T::symmetric
                     ? both.a
                     : plan_split(transposed(problem->B), count, of_b, &arrays);
        q = {*problem,
             both.a.to,
             both.b.to,
             arrays.take<int>(tiles * count),
             arrays.take<uint16_t>(tiles * count * max_failing),
             tiles,
             addend_or(where, &problem->C),
             marks ? arrays.take<uint64_t>(tiles * count * T::threads) : nullptr};
        if (pass == 0) {
            void *memory;
            const Status status = scratch_alloc(arrays.bytes, where, &memory);
            if (status.code != STATUS_OK) {
                drop_unfilled(where);
                return status;
            }
            arrays = {static_cast<char *>(memory), 0};
        }
    }
    both.a.to.groups = a_is_split ? 0 : both.a.to.groups;
    both.b.to.groups = b_is_split || (splits_a && T::symmetric) ? 0 : both.b.to.groups;
    Status status = split(both);
    if (status.code == STATUS_OK && tiles > 0) { // otherwise only prepared operands are needed
        // It can overlap only a kernel that lets it begin early: one of the split's.
        status = multiply(q, !(a_is_split && b_is_split));
    }
    if (status.code == STATUS_OK && tiles > 0) {
        status = recompute(q);
    }
    scratch_free(arrays.memory, where);
    return status;
}

/* The same with the usual split. */
template <class T, class Multiply, class Recompute>
Status launch_tiles_checked(const Sgemm *problem, int64_t tiles, const Launch *where,
                            const Multiply &multiply, const Recompute &recompute, bool splits_a,
                            bool marks = false)
{
    const auto split = [&](const SplitBoth &both) {
        return splits_a ? launch_split(both, problem->count, where)
                        : launch_split(both.b, problem->count, where->prepared[1], where);
    };
    return launch_steps<T>(problem, tiles, where, splits_a, marks, split, multiply, recompute);
}

/* The same for all tiles of the product, of which some fall back. */
template <class T, ElementType A_ELEMENT = ELEMENT_FLOAT32, class Multiply>
Status launch_checked(const Sgemm *problem, const Launch *where, const Multiply &multiply,
                      bool splits_a = true)
{
    const int64_t tiles = tiles_computed<T>(problem->C);
    return launch_tiles_checked<T>(
        problem, tiles, where,
        [&](const Fp16Product &q, bool overlaps) { return multiply(q, tiles, overlaps); },
        [&](const Fp16Product &q) {
            Recomputed failed = {q, 0, 0};
            return launch_recompute<T>(recompute<T, A_ELEMENT, Recomputed>, &failed, where);
        },
        splits_a);
}

} // namespace

#if defined(__CUDACC__)
extern "C" Launcher launch_splitk_cuda;
#elif !defined(SGEMM_TRACED)
extern "C" const Variant variant_per_element, variant_splitk;
#else
/* The product for K = 0, which splitk computes in other builds. */
static inline Status scale_C(const Sgemm *problem)
{
    for (int64_t row = 0; row < problem->C.rows; ++row) {
        for (int64_t col = 0; col < problem->C.cols; ++col) {
            float *const c = address(problem->C, row, col);
            *c = problem->beta == 0.0f ? 0.0f : problem->beta * *c;
        }
    }
    return status_ok();
}
#endif

/* Computes sums of fewer than `shortest` products by splitk in fp32. */
static inline Status launch_unless_short(Launcher *in_fp16, const Sgemm *problem,
                                         const Launch *where, int64_t shortest)
{
#ifdef __CUDACC__
    Launcher *const in_fp32 = launch_splitk_cuda;
#elif defined(SGEMM_TRACED)
    if (problem->A.cols == 0) {
        return scale_C(problem);
    }
    Launcher *const in_fp32 = in_fp16; // a counted tile represents long sums
#else
    // A CPU computes a small product faster without whole tiles; the bits are the same.
    const bool is_small = problem->C.rows * problem->C.cols <= 128 * 128 / 8;
    const Variant &rung = is_small ? variant_per_element : variant_splitk;
    Launcher *const in_fp32 = rung.launch[DEVICE_CPU];
#endif
    if (problem->A.cols >= shortest) {
        return in_fp16(problem, where);
    }
    const Status status = addend_copy(where, problem->count);
    return status.code == STATUS_OK ? in_fp32(problem, where) : status;
}

#endif
