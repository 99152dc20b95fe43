/* Which results of a product of halves are as good as float32's, and what becomes of the others.
 *
 * Two halves lose up to 2^-25 of a small element, however much smaller than that it is. Whether a
 * result can afford it is told from the result itself, in the units in which each line's largest
 * element lies in [2^14, 2^15): one of magnitude `certain` or more is within the bound that README
 * promises, whatever the operands were (docs/tensor_cores.md has the proof). A result of a line that
 * is all zero, or that no product reaches, is exact. All others are computed once more, in float32: 14_recompute.h.
 *
 * C may be read as well as written, so a tile of C decides before it stores: where few results fail,
 * it stores the others, and puts the places of these into slots of its own; where many do, it stores
 * nothing, and marks itself. The kernels of 14_recompute.h follow. Nothing of this depends on who comes
 * first, and nobody asks the host. */
#ifndef SGEMM_KERNELS_14_CERTIFY_H
#define SGEMM_KERNELS_14_CERTIFY_H

#include "../engine/plan.h"
#include "10_raster.cu"
#include "14_tiles.h"

namespace {

#ifdef SGEMM_COUNTED
constexpr float certain = 0.0f; // what is counted are zeros, which stand for ordinary operands
#else
constexpr float certain = 32768.0f; // 2^15
#endif
constexpr int shortest = HALVES_SHORTEST; // K from which on that is enough
constexpr int enough_to_tell = 4;         // stretches after which a tile may give up
constexpr int slots = 32;  // of a tile: more dot products cost more than the tile anew
constexpr int marked = -1; // in place of how many slots are filled

/* Of a result that is not certain: whether it is zero all the same. */
__device__ __forceinline__ bool is_exactly_zero(unsigned row_largest, unsigned col_largest,
                                                bool any_product)
{
    // No branches: `&` and `|`.
    return (row_largest < infinite) & (col_largest < infinite) &
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

/* The number of the lowest bit. */
__device__ __forceinline__ int lowest(uint64_t bits)
{
    return count_bits((bits & (~bits + 1)) - 1);
}

/* How many results of all the block's threads fail: a byte of each in `counts`, of which `before`
 * gets the sum of those of the threads before this one. */
template <int THREADS>
__device__ __forceinline__ int add_failing(const uint64_t (&counts)[THREADS / 8], int thread,
                                           int *before)
{
    constexpr uint64_t even = 0x00ff00ff00ff00ff; // bytes, so that 16 bits each hold their sums
    uint64_t sum = 0, sum_before = 0;
    UNROLL(1)
    for (int i = 0; i < THREADS / 8; ++i) {
        const uint64_t eight = counts[i];
        const int ours = thread - 8 * i; // of the eight that come before this thread
        const uint64_t those = ours >= 8  ? ~uint64_t{0}
                               : ours > 0 ? (uint64_t{1} << 8 * ours) - 1
                                          : 0;
        sum += (eight & even) + (eight >> 8 & even);
        sum_before += (eight & those & even) + ((eight & those) >> 8 & even);
    }
    *before = static_cast<int>((sum_before & 0xffff) + (sum_before >> 16 & 0xffff) +
                               (sum_before >> 32 & 0xffff) + (sum_before >> 48));
    return static_cast<int>((sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32 & 0xffff) +
                            (sum >> 48));
}

/* A certain sum in the units of C: once, by both lines' scales together, since one after the other
 * may overflow. */
__device__ __forceinline__ float scaled_back(float sum, int scale)
{
    return times_power(sum, scale < -254 ? 254 : scale > 252 ? -252 : -scale);
}

struct alignas(8) Pair {
    float x, y;
};

/* Results of a warp on their way to C, in shared memory: a row is then stored by neighbouring threads.
 * Eight columns more than there are bring the pairs of four rows to different banks. */
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
    /* Calls what(row, col) for each bit that is set, in order, and clears those of which it says so. */
    template <class What> __device__ __forceinline__ void clear_if(const What &what)
    {
        UNROLL(words)
        for (int i = 0; i < words; ++i) {
            for (uint64_t rest = word[i]; rest; rest &= rest - 1) {
                const int bit = lowest(rest);
                word[i] ^= static_cast<uint64_t>(what(i * rows + bit / cols, bit % cols)) << bit;
            }
        }
    }
};

/* A thread's results of a tile of C, and what it decides of them. The tensor core has a warp's
 * results in blocks of 16 x 8, four of each in a thread: two neighbours, and two 8 rows below. */
template <class T> struct TileOfResults {
    typedef ResultBits<T> Bits;
    const HalvesProduct &q;
    const Origin tile;
    const unsigned number;      // of the tile
    const int thread, row, col; // of its first result in the tile
    Bits certain_before;        // which results were at some point, and stay so

    __device__ __forceinline__ TileOfResults(const HalvesProduct &q, unsigned number, int thread)
        : q(q), tile(raster_origin<false>(q.p.C, T::BM, T::BN, number)), number(number),
          thread(thread), row(thread / 32 / T::warps_across * T::WM + thread % 32 / 4),
          col(thread / 32 % T::warps_across * T::WN + thread % 4 * 2), certain_before()
    {}

    /* Result (i, j) of the 2 MI x 2 NI: its row and column in the tile, and itself. */
    __device__ __forceinline__ int down(int i) const
    {
        return row + i * 8;
    }
    __device__ __forceinline__ int right(int j) const
    {
        return col + j / 2 * 8 + j % 2;
    }
    static __device__ __forceinline__ float of(const float (&sum)[T::MI][T::NI][4], int i, int j)
    {
        return sum[i / 2][j / 2][i % 2 * 2 + j % 2];
    }

    static __device__ __forceinline__ Bits find_certain(const float (&sum)[T::MI][T::NI][4])
    {
        Bits found = {};
        UNROLL(2 * T::MI)
        for (int i = 0; i < 2 * T::MI; ++i) {
            UNROLL(2 * T::NI)
            for (int j = 0; j < 2 * T::NI; ++j) {
                const bool yes = fabsf(of(sum, i, j)) >= certain;
                found.word[i / Bits::rows] |= static_cast<uint64_t>(yes)
                                              << (i % Bits::rows * Bits::cols + j);
            }
        }
        return found;
    }

    /* Which results fail in the end. Those beyond the edges of C do not. */
    __device__ __forceinline__ Bits find_failing(const float (&sum)[T::MI][T::NI][4],
                                                 bool any_product) const
    {
        constexpr uint64_t all = ~uint64_t{0} >> (64 - Bits::rows * Bits::cols);
        const int rows = clamped(q.p.C.rows - tile.row), cols = clamped(q.p.C.cols - tile.col);
        Bits failing = find_certain(sum);
        UNROLL(Bits::words)
        for (int i = 0; i < Bits::words; ++i) {
            failing.word[i] = ~(failing.word[i] | certain_before.word[i]) & all;
        }
        failing.clear_if([&](int i, int j) {
            const bool inside = down(i) < rows && right(j) < cols;
            return !inside || is_exactly_zero(q.a.largest[tile.row + down(i)],
                                              q.b.largest[tile.col + right(j)], any_product);
        });
        return failing;
    }

    /* Adds up what all T::threads count, and what those before this one do. */
    __device__ __forceinline__ int add_counts(int count, uint64_t (&counts)[T::threads / 8],
                                              int *before) const
    {
        reinterpret_cast<uint8_t *>(counts)[thread] = static_cast<uint8_t>(count);
        T::meet();
        uint64_t any = 0;
        UNROLL(T::threads / 8)
        for (int i = 0; i < T::threads / 8; ++i) {
            any |= counts[i];
        }
        *before = 0;
        return any ? add_failing<T::threads>(counts, thread, before) : 0;
    }

    /* Of a sum that is not at its end: notes which results are certain already, whatever they will
     * be. Returns whether the tile is marked now, since most are small so far. */
    __device__ __forceinline__ bool give_up(const float (&sum)[T::MI][T::NI][4],
                                            uint64_t (&counts)[T::threads / 8])
    {
        certain_before = find_certain(sum);
        const int64_t rows = q.p.C.rows - tile.row, cols = q.p.C.cols - tile.col;
        const int64_t inside = (rows < T::BM ? rows : T::BM) * (cols < T::BN ? cols : T::BN);
        const int mine = 4 * T::MI * T::NI - certain_before.count();
        int before;
        const int64_t beyond = T::BM * T::BN - inside; // all zeros
        const int64_t small = add_counts(mine, counts, &before) - beyond;
        T::meet(); // all have read what others will write anew
        if (thread == 0 && 2 * small > inside) {
            q.failed[number] = marked;
        }
        return 2 * small > inside;
    }

    /* Stores what is certain, and notes what is not; or marks the tile. */
    __device__ __forceinline__ void store_certain(const float (&sum)[T::MI][T::NI][4],
                                                  bool any_product,
                                                  uint64_t (&counts)[T::threads / 8],
                                                  Staging *staging_of_warps) const
    {
        Bits failing = find_failing(sum, any_product);
        int slot;
        const int all_failing = add_counts(failing.count(), counts, &slot);
        if (thread == 0) {
            q.failed[number] = all_failing <= slots ? all_failing : marked;
        }
        if (all_failing > slots) {
            return;
        }
        failing.clear_if([&](int i, int j) {
            q.place[static_cast<int64_t>(number) * slots + slot++] =
                static_cast<uint16_t>(down(i) * T::BN + right(j));
            return false;
        });

        // In passes of 16 x 32 results a thread stores four quads, or half a column.
        constexpr int passes_down = T::MI, passes_across = T::WN / Staging::cols;
        const int lane = thread % 32, quad_row = lane / 8, quad_col = lane % 8 * 4;
        const int64_t first_row = tile.row + row - lane / 4;
        const int64_t first_col = tile.col + col - lane % 4 * 2;
        const int *const row_scales = q.a.scale + first_row;
        const int *const col_scales = q.b.scale + first_col;
        int row_scale[passes_down][4], col_scale[passes_across][4];
        const bool whole = all_failing == 0 && q.p.C.rows - tile.row >= T::BM &&
                           q.p.C.cols - tile.col >= T::BN && is_aligned(q.p.C.data) &&
                           q.p.C.row_stride % 4 == 0;
        const bool narrow =
            whole && (load_scales(row_scale, row_scales + quad_row, Staging::rows, 4) &
                      load_scales(col_scale, col_scales + quad_col, Staging::cols, 1));
        const bool quads = __all_sync(0xffffffff, narrow); // a warp stores in one way
#ifdef SGEMM_COUNTED
        name_array("staging", staging_of_warps, sizeof(Staging) * T::threads / 32);
#endif
        Staging &staging = staging_of_warps[thread / 32];
        UNROLL(passes_down)
        for (int i = 0; i < passes_down; ++i) {
            UNROLL(passes_across)
            for (int j = 0; j < passes_across; ++j) {
                __syncwarp(); // all have read the pass before
                stage(sum[i], failing, i, j, staging);
                __syncwarp();
                const Results C =
                    results(q.p.C, first_row + i * Staging::rows, first_col + j * Staging::cols);
                if (quads) {
                    UNROLL(4)
                    for (int r = 0; r < 4; ++r) {
                        store_staged_quad(staging.results[quad_row + 4 * r] + quad_col,
                                          row_scale[i][r], col_scale[j], C, quad_row + 4 * r,
                                          quad_col);
                    }
                    continue;
                }
                UNROLL(1)
                for (int r = 0; r < Staging::rows; ++r) {
                    const float staged = staging.results[r][lane];
                    if (r < C.rows && lane < C.cols && staged == staged) {
                        const int scale = row_scales[i * Staging::rows + r] +
                                          col_scales[j * Staging::cols + lane];
                        store(q.p, C, r, lane, scaled_back(staged, scale));
                    }
                }
            }
        }
    }

  private:
    /* Of `N` passes four scales each. Returns whether they allow for sums to be taken back by one power
     * of two, as nearly all do. */
    template <int N>
    static __device__ __forceinline__ bool load_scales(int (&to)[N][4], const int *from, int step,
                                                       int step_of_four)
    {
        constexpr int narrow = 63;
        int beyond = 0;
        UNROLL(N)
        for (int i = 0; i < N; ++i) {
            UNROLL(4)
            for (int four = 0; four < 4; ++four) {
                to[i][four] = from[i * step + four * step_of_four];
                beyond |= (narrow + to[i][four]) | (narrow - to[i][four]);
            }
        }
        return beyond >= 0;
    }

    /* A pass's results, with NaN for those that fail, to the warp's staging. */
    __device__ __forceinline__ void stage(const float (&sum)[T::NI][4], const Bits &failing, int i,
                                          int across, Staging &staging) const
    {
        const int lane = thread % 32, first_row = lane / 4, first_col = lane % 4 * 2;
        constexpr int blocks = Staging::cols / 8; // of 8 columns, in each of which it has two
        UNROLL(2)
        for (int half = 0; half < 2; ++half) {
            float *const to = staging.results[first_row + 8 * half] + first_col;
            UNROLL(blocks)
            for (int j = 0; j < blocks; ++j) {
                const float *const two = sum[across * blocks + j] + 2 * half;
                const Pair pair = {two[0], two[1]};
                *reinterpret_cast<Pair *>(to + 8 * j) = pair;
            }
            const uint64_t bits = failing.row(2 * i + half) >> across * 2 * blocks & 0xff;
            for (uint64_t rest = bits; rest; rest &= rest - 1) {
                const int bit = lowest(rest);
                to[bit / 2 * 8 + bit % 2] = NAN;
            }
        }
    }

    __device__ __forceinline__ void store_staged_quad(const float *staged, int row_scale,
                                                      const int (&col_scale)[4], const Results &C,
                                                      int down, int right) const
    {
        const float4 quad = *reinterpret_cast<const float4 *>(staged);
        float sums[] = {quad.x, quad.y, quad.z, quad.w};
        float4 *const c = reinterpret_cast<float4 *>(C.first + down * C.ld + right);
        const float4 old = q.p.beta == 0.0f ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *c;
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            sums[i] *= power_of_two(-(row_scale + col_scale[i]));
        }
        const float4 fresh = make_float4(scaled(q.p, sums[0], old.x), scaled(q.p, sums[1], old.y),
                                         scaled(q.p, sums[2], old.z), scaled(q.p, sums[3], old.w));
        *c = fresh;
    }
};

} // namespace

#endif
