/* Splits rows of A in registers: from a float32 tile in shared memory to the fp16 pairs that wgmma
 * reads as its A. */
#ifndef SGEMM_KERNELS_SPLIT_IN_REGISTERS_H
#define SGEMM_KERNELS_SPLIT_IN_REGISTERS_H

#include "split_fp16.h"

namespace {

/* A's tile in shared memory has lines of 128 bytes, swizzled: rows, or if A is MN-major, steps of K
 * of 32 rows. */
constexpr int line_floats = 32;
static_assert(line_floats == k_block, "a row's K block is one line");

/* What the check needs of a row of A. Each K chunk of the row has a scale of its own. */
struct RowOfA {
    float inverse_scales; // their sum
    float largest;        // NaN if any element is
};

/* In this order, 16 lanes that read 8 bytes each use different banks. */
struct EvenRowsFirst {
    static __device__ __forceinline__ int row_of_lane(int lane)
    {
        return lane / 4 * 2 % 8 + lane / 16;
    }
    static __device__ __forceinline__ int lane_of_row(int row)
    {
        return (row % 2 * 4 + row / 2) * 4;
    }
};

constexpr int depths = k_chunk / 16; /* products along K */

/* A thread's elements of two rows of a K chunk, in the layout of wgmma's A: [depth][register]. */
typedef Pair PairsOfA[depths][4];

/* Reads one of the chunk's two K blocks. `row` is the thread's first of the tile. */
__device__ __forceinline__ void read_pairs(const float *As, int row, int block, PairsOfA &to)
{
    const int lane = threadIdx.x % 32;
    UNROLL(depths / 2)
    for (int d = 0; d < depths / 2; ++d) {
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            const int vector = swizzled(row, 4 * d + i / 2 * 2 + lane % 4 / 2);
            const float *const from = As + (row + i % 2 * 8) * line_floats + vector * 4;
            to[block * depths / 2 + d][i] = reinterpret_cast<const Pair *>(from)[lane % 2];
        }
    }
}

/* The same from an MN-major tile: 32 rows with 32 steps of K, then the next 32 rows. Lanes read 8
 * rows at 4 steps of K, which the swizzle puts in 32 banks. */
__device__ __forceinline__ void read_pairs_mn_major(const float *As, int row, int block,
                                                    PairsOfA &to)
{
    const int k = threadIdx.x % 4 * 2; // of the first pair
    const float *const rows = As + row / line_floats * (k_block * line_floats);
    UNROLL(4)
    for (int i = 0; i < 4; ++i) {
        const int in_line = row % line_floats + i % 2 * 8;
        const auto at = [&](int k) {
            return rows + k * line_floats + swizzled(k, in_line / 4) * 4 + in_line % 4;
        };
        const float *const x = at(k), *const y = at(k + 1);
        UNROLL(depths / 2)
        for (int d = 0; d < depths / 2; ++d) {
            const int step = (16 * d + i / 2 * 8) * line_floats; // whole periods of the swizzle
            to[block * depths / 2 + d][i] = {x[step], y[step]};
        }
    }
}

__device__ __forceinline__ float larger(float largest, const Pair &x)
{
    return max_or_nan(max_or_nan(largest, fabsf(x.x)), fabsf(x.y));
}

/* The scale that takes a row's largest magnitude in a chunk to [2^14, 2^15), and its inverse.
 * Threads pass the largest of their own elements. The scale is at most 2^125, so that its inverse
 * is normal. */
__device__ __forceinline__ float scale_of_chunk(float largest, RowOfA &row, float &inverse)
{
    largest = max_or_nan(largest, __shfl_xor_sync(0xffffffff, largest, 1));
    largest = max_or_nan(largest, __shfl_xor_sync(0xffffffff, largest, 2));
    const int field = static_cast<int>(bits_of(largest) >> 23);
    const int exponent = (field > 16 ? field : 16) - 127;
    inverse = power_of_two(exponent - 14);
    row.inverse_scales += inverse;
    row.largest = max_or_nan(row.largest, largest);
    return power_of_two(14 - exponent);
}

/* Scales both rows, and splits them. Returns the inverse scales. */
__device__ __forceinline__ void split_pairs(const PairsOfA &x, RowOfA (&rows)[2],
                                            float (&inverse)[2], unsigned (&hi)[depths][4],
                                            unsigned (&lo)[depths][4])
{
    float scale[2];
    UNROLL(2)
    for (int r = 0; r < 2; ++r) {
        float largest = 0.0f;
        UNROLL(depths)
        for (int d = 0; d < depths; ++d) {
            largest = larger(larger(largest, x[d][r]), x[d][r + 2]);
        }
        scale[r] = scale_of_chunk(largest, rows[r], inverse[r]);
    }
    UNROLL(depths)
    for (int d = 0; d < depths; ++d) {
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            const float a = x[d][i].x * scale[i % 2], b = x[d][i].y * scale[i % 2];
            const Pair high = round_two(a, b, hi[d][i]);
            round_two(a - high.x, b - high.y, lo[d][i]); // exact differences
        }
    }
}

/* sum += the product of a K chunk, without the scales of its rows. */
template <int NI>
__device__ __forceinline__ void add_scaled(float (&part)[NI][4], const float (&inverse)[2],
                                           float (&sum)[1][NI][4])
{
    UNROLL(NI)
    for (int j = 0; j < NI; ++j) {
        wgmma_accumulators_ready(part[j]);
        UNROLL(4)
        for (int r = 0; r < 4; ++r) {
            sum[0][j][r] = multiply_add(part[j][r], inverse[r / 2], sum[0][j][r]);
        }
    }
}

} // namespace

#endif
