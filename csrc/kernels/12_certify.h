/* Which results of a product of halves are as good as float32's, and what becomes of the others.
 *
 * Two halves lose up to 2^-25 of a small element, however much smaller than that it is. Whether a
 * result can afford it is told from the result itself, in the units in which each line's largest
 * element lies in [2^14, 2^15): one of magnitude `certain` or more is within the bound that README
 * promises, whatever the operands were (docs/tensor_cores.md has the proof). A result of a line that
 * is all zero, or that no product reaches, is exact. All others are computed once more, in float32: 12_recompute.h.
 *
 * C may be read as well as written, so a tile of C decides before it stores: where few results fail,
 * it stores the others, and puts the places of these into slots of its own; where many do, it stores
 * nothing, and marks itself. The kernels of 12_recompute.h follow. Nothing of this depends on who comes
 * first, and nobody asks the host. */
#ifndef SGEMM_KERNELS_CERTIFY_H
#define SGEMM_KERNELS_CERTIFY_H

#include "12_tiles.h"

namespace {

constexpr float certain = 32768.0f; // 2^15
constexpr int shortest = 256;       // K from which on that is enough
constexpr int enough_to_tell = 4;   // stretches after which a tile may give up
constexpr int slots = 32;           // of a tile: more dot products cost more than the tile anew
constexpr int marked = -1;          // in place of how many slots are filled

__device__ __forceinline__ bool is_certain(float sum, unsigned row_largest, unsigned col_largest,
                                           bool any_product)
{
    // No branches: `&` and `|`.
    return (row_largest < infinite) & (col_largest < infinite) &
           ((fabsf(sum) >= certain) | (row_largest == 0) | (col_largest == 0) | !any_product);
}

/* How many results of all the block's threads fail: a byte of each in `counts`, of which `before`
 * gets the sum of those of the threads before this one. */
template <int THREADS>
__device__ __forceinline__ int add_failing(const uint64_t (&counts)[THREADS / 8], int thread,
                                           int *before)
{
    constexpr uint64_t even = 0x00ff00ff00ff00ff; // bytes, so that 16 bits each hold their sums
    uint64_t sum = 0, sum_before = 0;
    UNROLL(THREADS / 8)
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

/* A certain sum in the units of C: once, by both scales together, since one after the other may
 * overflow. */
__device__ __forceinline__ float scaled_back(float sum, int scale)
{
    return times_power(sum, scale < -254 ? 254 : scale > 252 ? -252 : -scale);
}

struct alignas(8) Pair {
    float x, y;
};

/* Two neighbours of a row, which are aligned, and inside C together or outside. */
__device__ __forceinline__ void store_two(const Sgemm &p, const Results &C, int col,
                                          const float (&sums)[2])
{
    if (C.rows > 0 && col < C.cols) {
        Pair *const c = reinterpret_cast<Pair *>(C.first + col);
        const Pair before = p.beta == 0.0f ? Pair{0.0f, 0.0f} : *c;
        const Pair after = {scaled(p, sums[0], before.x), scaled(p, sums[1], before.y)};
        *c = after;
    }
}

/* A thread's results of a tile of C, and what it decides of them. The tensor core has a warp's
 * results in blocks of 16 x 8, four of each in a thread: two neighbours, and two 8 rows below. */
template <class T> struct TileOfResults {
    const HalvesProduct &q;
    const Origin &tile;
    int thread, row, col; // of its first result in the tile

    __device__ __forceinline__ TileOfResults(const HalvesProduct &q, const Origin &tile, int thread)
        : q(q), tile(tile), thread(thread),
          row(thread / 32 / T::warps_across * T::WM + thread % 32 / 4),
          col(thread / 32 % T::warps_across * T::WN + thread % 4 * 2)
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

    /* Which results fail: a bit for each, row by row. Those beyond the edges do not. */
    __device__ __forceinline__ uint64_t find_failing(const float (&sum)[T::MI][T::NI][4],
                                                     bool any_product) const
    {
        unsigned col_largest[2 * T::NI];
        UNROLL(2 * T::NI)
        for (int j = 0; j < 2 * T::NI; ++j) {
            col_largest[j] = q.b.largest[tile.col + right(j)];
        }
        const int rows = clamped(q.p.C.rows - tile.row), cols = clamped(q.p.C.cols - tile.col);
        uint64_t failing = 0;
        UNROLL(2 * T::MI)
        for (int i = 0; i < 2 * T::MI; ++i) {
            const unsigned row_largest = q.a.largest[tile.row + down(i)];
            UNROLL(2 * T::NI)
            for (int j = 0; j < 2 * T::NI; ++j) {
                const bool fails =
                    (down(i) < rows) & (right(j) < cols) &
                    !is_certain(of(sum, i, j), row_largest, col_largest[j], any_product);
                failing |= static_cast<uint64_t>(fails) << (i * 2 * T::NI + j);
            }
        }
        return failing;
    }

    /* Adds up the whole block's. */
    __device__ __forceinline__ int
    count_failing(uint64_t failing, uint64_t (&counts)[T::threads / 8], int *before) const
    {
        int count = 0;
        for (uint64_t rest = failing; rest; rest &= rest - 1) {
            ++count;
        }
        reinterpret_cast<uint8_t *>(counts)[thread] = static_cast<uint8_t>(count);
        __syncthreads();
        return add_failing<T::threads>(counts, thread, before);
    }

    /* Whether the tile is marked before its end, since most results are small so far. */
    __device__ __forceinline__ bool give_up(const float (&sum)[T::MI][T::NI][4],
                                            uint64_t (&counts)[T::threads / 8]) const
    {
        const int64_t rows = q.p.C.rows - tile.row, cols = q.p.C.cols - tile.col;
        const int64_t inside = (rows < T::BM ? rows : T::BM) * (cols < T::BN ? cols : T::BN);
        int before;
        const int failing = count_failing(find_failing(sum, true), counts, &before);
        __syncthreads(); // all have read what others will write anew
        if (thread == 0 && 2 * failing > inside) {
            q.failed[blockIdx.x] = marked;
        }
        return 2 * failing > inside;
    }

    /* Stores what is certain, and notes what is not; or marks the tile. */
    __device__ __forceinline__ void store_certain(const float (&sum)[T::MI][T::NI][4],
                                                  bool any_product,
                                                  uint64_t (&counts)[T::threads / 8]) const
    {
        const uint64_t failing = find_failing(sum, any_product);
        int slot;
        const int all_failing = count_failing(failing, counts, &slot);
        if (thread == 0) {
            q.failed[blockIdx.x] = all_failing <= slots ? all_failing : marked;
        }
        if (all_failing > slots) {
            return;
        }
        // Whether each two neighbours are inside C together, or outside, and aligned.
        const bool pairs = q.p.C.cols % 2 == 0 && q.p.C.row_stride % 2 == 0 &&
                           reinterpret_cast<uintptr_t>(q.p.C.data) % sizeof(Pair) == 0;
        int col_scale[2 * T::NI];
        UNROLL(2 * T::NI)
        for (int j = 0; j < 2 * T::NI; ++j) {
            col_scale[j] = scale_of(q.b.largest[tile.col + right(j)]);
        }
        UNROLL(2 * T::MI)
        for (int i = 0; i < 2 * T::MI; ++i) {
            const Results C = results(q.p.C, tile.row + down(i), tile.col);
            const int row_scale = scale_of(q.a.largest[tile.row + down(i)]);
            UNROLL(2 * T::NI)
            for (int j = 0; j < 2 * T::NI; j += 2) {
                const int bit = i * 2 * T::NI + j;
                const float two[] = {scaled_back(of(sum, i, j), row_scale + col_scale[j]),
                                     scaled_back(of(sum, i, j + 1), row_scale + col_scale[j + 1])};
                if (pairs && (failing >> bit & 3) == 0) {
                    store_two(q.p, C, right(j), two);
                    continue;
                }
                UNROLL(2)
                for (int c = 0; c < 2; ++c) {
                    if (failing >> (bit + c) & 1) {
                        q.place[static_cast<int64_t>(blockIdx.x) * slots + slot++] =
                            static_cast<uint16_t>(down(i) * T::BN + right(j) + c);
                    } else {
                        store(q.p, C, 0, right(j) + c, two[c]);
                    }
                }
            }
        }
    }
};

} // namespace

#endif
