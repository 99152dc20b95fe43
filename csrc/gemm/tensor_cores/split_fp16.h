/* Splits each float32 x into an fp16 hi/lo pair, so that three fp16 products on tensor cores
 * give nearly a float32 product: a * b = hi hi + hi lo + lo hi. docs/inside/tensor_cores.md has the
 * arithmetic.
 *
 * fp16 has 11 bits and a small range. So each row is first scaled by a power of two that takes
 * its largest magnitude to [2^14, 2^15): nothing overflows, and scaling is exact. Then hi =
 * fp16(x) and lo = fp16(x - hi) keep 22 bits of x, down to 2^-25. error_check.h deals with
 * smaller elements.
 *
 * Here, the rows of an operand are the rows of A or the columns of B: B is treated as its
 * transpose. Both are stored alike, K-major and padded with zeros to a multiple of 128 rows and
 * of 64 along K. */
#ifndef SGEMM_KERNELS_SPLIT_FP16_H
#define SGEMM_KERNELS_SPLIT_FP16_H

#include <string.h>

#include "../kernel/ptx.h"
#include "../kernel/stored_element.h"

namespace {

/* Eight fp16 numbers: what one 16-byte access moves, and a row of an ldmatrix matrix. */
struct alignas(16) Fp16x8 {
    uint64_t fours[2];
};

constexpr int group_rows = 128;                  /* rows that one block splits */
constexpr int k_chunk = 64;                      /* elements along K that one block splits */
constexpr int k_block = 32;                      /* stored together: 32 hi, then their 32 lo */
constexpr int lo_offset = 4;                     /* Fp16x8 from an element's hi to its lo */
constexpr int block_vectors = 2 * lo_offset;     /* Fp16x8 of a row's K block: 128 bytes */
constexpr int chunk_vectors = 2 * block_vectors; /* of a row's K chunk */
/* Parts of K in the search for the largest magnitudes: eight, or up to 32 as long as that gives no
 * more blocks than fill a GPU. A thread loads eight values at once. */
constexpr int parts_at_once = 8, max_parts = 32, blocks_to_fill = 264;
constexpr int long_mn_major = 2048; /* a longer K of MN-major rows is split by two kernels */

/* The index of a row's Fp16x8 in a shared tile, swizzled like TMA's 128-byte swizzle: eight
 * neighbouring rows use different banks. */
__device__ __forceinline__ int swizzled(int row, int vector)
{
    return vector ^ row % 8;
}

/* An operand as fp16 hi/lo pairs. The matrices of a batch follow each other, in every array. */
struct Fp16Operand {
    Fp16x8 *vectors;        /* [row][K chunk][K block][hi, lo] */
    unsigned *largest;      /* each row's largest magnitude, as bits */
    int *scale;             /* the exponent of the power of two that each row was multiplied by */
    unsigned *part_largest; /* `largest` of each part of K */
    uint8_t *nonzero;       /* [group of rows][K chunk]: whether any element is not zero */
    int64_t groups;         /* of a matrix */
    int chunks;             /* fits in int: see is_countable() */
    int64_t matrices;       /* 1: all products of a batch have the same one */

    /* Fp16x8 from row to row. */
    __host__ __device__ int64_t pitch() const
    {
        return static_cast<int64_t>(chunks) * chunk_vectors;
    }
    /* The first group of rows, and the first row, of a matrix of the batch. */
    __device__ __forceinline__ int64_t first_group(unsigned matrix = blockIdx.y) const
    {
        return matrices > 1 ? matrix * groups : 0;
    }
    __device__ __forceinline__ int64_t first_row(unsigned matrix = blockIdx.y) const
    {
        return first_group(matrix) * group_rows;
    }
    /* Whether another product's block splits this block's matrix. */
    __device__ __forceinline__ bool is_split_elsewhere() const
    {
        return matrices == 1 && blockIdx.y > 0;
    }
};

constexpr unsigned infinity_bits = 0x7f800000; /* larger magnitudes are NaN */

__device__ __forceinline__ uint16_t fp16_from_float(float x)
{
#ifdef __CUDACC__
    return __half_as_ushort(__float2half_rn(x));
#else
    return grid_half(x);
#endif
}

struct alignas(8) Pair {
    float x, y;
};

/* Rounds two floats to fp16: to one register, and as floats. */
__device__ __forceinline__ Pair round_two(float x, float y, unsigned &pair)
{
#ifdef __CUDACC__
    const __half2 both = __floats2half2_rn(x, y);
    memcpy(&pair, &both, sizeof pair);
    return {__low2float(both), __high2float(both)};
#else
    pair = fp16_from_float(x) | static_cast<unsigned>(fp16_from_float(y)) << 16;
    return {float_from_fp16(static_cast<uint16_t>(pair)),
            float_from_fp16(static_cast<uint16_t>(pair >> 16))};
#endif
}

__device__ __forceinline__ unsigned bits_of(float x)
{
#ifdef __CUDACC__
    return __float_as_uint(x);
#else
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
#endif
}

/* 2^exponent, for -126 to 127. */
__device__ __forceinline__ float power_of_two(int exponent)
{
    return float_of_bits(static_cast<unsigned>(exponent + 127) << 23);
}

/* x * 2^exponent, for -252 to 254. Rounds once if 2^-48 <= |x| < 2^128 or the result is normal. */
__device__ __forceinline__ float times_power(float x, int exponent)
{
    const int half = exponent / 2; /* in two steps: 2^163 exceeds float32 */
    return x * power_of_two(half) * power_of_two(exponent - half);
}

/* The exponent of the power of two that a row is scaled by: -113 to 163. */
__device__ __forceinline__ int scale_of(unsigned largest)
{
    if (largest == 0 || largest >= infinity_bits) {
        return 0;
    }
    int exponent = static_cast<int>(largest >> 23) - 127;
    if (exponent == -127) { // subnormal: its highest bit is the 24th of a normal number
        exponent = -150;
        for (unsigned rest = largest; rest; rest >>= 1) {
            ++exponent;
        }
    }
    return 14 - exponent;
}

/* ------------------------------------------------------------------ reading an operand */

__host__ __device__ inline bool is_aligned16(const void *address)
{
    return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

/* An operand to split, as rows x K, and its result. */
struct Split {
    Matrix X;
    Fp16Operand to;
    int parts;         /* of K, for the largest magnitudes */
    int64_t part_size; /* elements of a row in one part */
    bool k_major;      /* contiguous along K, not across the rows */
    bool aligned;      /* can be read as float4 */
    int block_rows;    /* rows that a block of split_whole_rows splits */
    int of_row;        /* its threads for each row */

    __host__ __device__ int64_t rows() const
    {
        return to.groups * group_rows;
    }
    /* The matrix that a row belongs to. */
    __device__ __forceinline__ const Matrix &matrix_of(int64_t) const
    {
        return X;
    }
};

/* Both operands: one launch splits A and then B. */
struct SplitBoth {
    Split a, b;
};

constexpr int split_threads = 256;

/* Four contiguous elements of a row-major matrix; zeros beyond its edges, unless it is INSIDE. */
template <bool INSIDE>
__device__ __forceinline__ float4 load4(const Matrix &X, int64_t row, int64_t col)
{
    if (INSIDE) {
        return *reinterpret_cast<const float4 *>(address(X, row, col));
    }
    const int64_t left = row < X.rows ? X.cols - col : 0;
    return make_float4(left > 0 ? at(X, row, col) : 0.0f, left > 1 ? at(X, row, col + 1) : 0.0f,
                       left > 2 ? at(X, row, col + 2) : 0.0f,
                       left > 3 ? at(X, row, col + 3) : 0.0f);
}

/* Whether a group's rows, up to `end` along K, are inside the matrix and aligned. */
__device__ __forceinline__ bool is_inside(const Split &s, int64_t first_row, int64_t end)
{
    return s.aligned && first_row + group_rows <= s.X.rows && end <= s.X.cols;
}

/* ------------------------------------------------------------------ the largest magnitudes */

__device__ __forceinline__ unsigned larger(unsigned largest, float x)
{
    const unsigned bits = bits_of(x) & INT32_MAX;
    return bits > largest ? bits : largest;
}

constexpr int found_pitch = 33; /* a value from each lane of a warp, and one of padding */

/* Each thread stores the largest magnitude that it finds in a row in `found`. Each load reads four
 * contiguous elements. If the operand is K-major, a warp reads 16 rows; otherwise it reads all rows
 * at one k. */
template <bool INSIDE>
__device__ __forceinline__ void find_largest(const Split &s, int64_t first, int64_t begin,
                                             int64_t end,
                                             unsigned (&found)[group_rows][found_pitch])
{
    constexpr int warps = split_threads / 32, warp_rows = group_rows / warps;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (s.k_major) {
        unsigned largest[warp_rows] = {};
        for (int64_t k = begin + 4 * lane; k < end; k += 4 * 32) {
            UNROLL(warp_rows)
            for (int i = 0; i < warp_rows; ++i) {
                const float4 x = load4<INSIDE>(s.X, first + warp * warp_rows + i, k);
                largest[i] = larger(larger(larger(larger(largest[i], x.x), x.y), x.z), x.w);
            }
        }
        UNROLL(warp_rows)
        for (int i = 0; i < warp_rows; ++i) {
            found[warp * warp_rows + i][lane] = largest[i];
        }
    } else {
        const Matrix row_major = transposed(s.X);
        unsigned largest[4] = {};
        UNROLL(8)
        for (int64_t k = begin + warp; k < end; k += warps) {
            const float4 x = load4<INSIDE>(row_major, k, first + 4 * lane);
            largest[0] = larger(largest[0], x.x);
            largest[1] = larger(largest[1], x.y);
            largest[2] = larger(largest[2], x.z);
            largest[3] = larger(largest[3], x.w);
        }
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            found[4 * lane + i][warp] = largest[i];
        }
    }
}

/* One block for each group of rows and part of K. */
__global__ void __launch_bounds__(split_threads) largest_of_rows(const SplitBoth both)
{
    __shared__ unsigned found[group_rows][found_pitch];
    const int64_t blocks_of_a = both.a.to.groups * both.a.parts;
    const Split &s = blockIdx.x < blocks_of_a ? both.a : both.b;
    const int64_t block = blockIdx.x < blocks_of_a ? blockIdx.x : blockIdx.x - blocks_of_a;
    if (s.to.is_split_elsewhere()) {
        return;
    }
    const int64_t part = block / s.to.groups, first = block % s.to.groups * group_rows;
    const int64_t begin = part * s.part_size;
    const int64_t end = begin + s.part_size < s.X.cols ? begin + s.part_size : s.X.cols;
    if (is_inside(s, first, end) && (end % 4 == 0 || !s.k_major)) {
        find_largest<true>(s, first, begin, end, found);
    } else {
        find_largest<false>(s, first, begin, end, found);
    }
    griddep_launch_dependents();
    __syncthreads();
    if (threadIdx.x < group_rows) {
        const int count = s.k_major ? 32 : split_threads / 32;
        unsigned largest = 0;
        UNROLL(8)
        for (int i = 0; i < count; ++i) {
            const unsigned bits = found[threadIdx.x][i];
            largest = bits > largest ? bits : largest;
        }
        s.to.part_largest[s.to.first_row() * s.parts + part * s.rows() + first + threadIdx.x] =
            largest;
    }
}

/* ------------------------------------------------------------------ hi and lo */

/* A row's scale as two factors, because 2^163 exceeds float32. If a row has infinities or NaNs, its
 * first factor is 0: the row becomes zeros, which never pass the error check. */
struct Powers {
    float first, second;
};

/* Splits x, and stores its hi and lo at bit `shift` of words with four hi and four lo values. */
__device__ __forceinline__ void split(float x, Powers powers, int shift, uint64_t *hi, uint64_t *lo)
{
    const float scaled = powers.first == 0.0f ? 0.0f : x * powers.first * powers.second;
    const uint16_t high = fp16_from_float(scaled);
    const uint16_t low = fp16_from_float(scaled - float_from_fp16(high)); // exact difference
    *hi |= static_cast<uint64_t>(high) << shift;
    *lo |= static_cast<uint64_t>(low) << shift;
}

/* A thread's share of 128 rows x one K chunk: eight times four contiguous elements. */
typedef float Share[8][4];

template <bool INSIDE>
__device__ __forceinline__ void load_share(const Split &s, int64_t first, int64_t begin,
                                           Share &share)
{
    const Matrix row_major = s.k_major ? s.X : transposed(s.X);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    UNROLL(8)
    for (int i = 0; i < 8; ++i) {
        const int64_t row =
            s.k_major ? first + thread / 16 + 16 * i : begin + 4 * (warp + i / 4 * 8) + i % 4;
        const int64_t col = s.k_major ? begin + thread % 16 * 4 : first + 4 * lane;
        const float4 x = load4<INSIDE>(row_major, row, col);
        share[i][0] = x.x, share[i][1] = x.y, share[i][2] = x.z, share[i][3] = x.w;
    }
}

/* A share as eight groups of four along K. For the i-th group: its row, its index among the 16
 * groups of the row, and its elements. */
__device__ __forceinline__ int row_of(const Split &s, int i)
{
    return s.k_major ? threadIdx.x / 16 + 16 * i : threadIdx.x % 32 * 4 + i % 4;
}
__device__ __forceinline__ int four_of(const Split &s, int i)
{
    return s.k_major ? threadIdx.x % 16 : threadIdx.x / 32 + i / 4 * 8;
}
__device__ __forceinline__ float element_of(const Split &s, const Share &share, int i, int k)
{
    return s.k_major ? share[i][k] : share[i / 4 * 4 + k][i % 4];
}

/* The index of a row's Fp16x8 in the kernel's tile. Neither eight neighbouring rows nor eight rows
 * four apart have bank conflicts. */
__device__ __forceinline__ int place_in_row(int row, int vector)
{
    return vector ^ (row + row / 4) % 8;
}

/* One block for each group of rows and K chunk. Shared memory puts the rows in order, whichever way
 * they were read. */
__global__ void __launch_bounds__(split_threads) split_rows(const SplitBoth both)
{
    __shared__ Fp16x8 tile[group_rows][chunk_vectors];
    __shared__ Powers powers[group_rows];
    __shared__ uint64_t nonzero[split_threads / 8]; // a byte for each thread
    const int64_t blocks_of_a = both.a.to.groups * both.a.to.chunks;
    const Split &s = blockIdx.x < blocks_of_a ? both.a : both.b;
    const int64_t block = blockIdx.x < blocks_of_a ? blockIdx.x : blockIdx.x - blocks_of_a;
    if (s.to.is_split_elsewhere()) {
        return;
    }
    const int64_t first = block / s.to.chunks * group_rows; // in its matrix
    const int64_t begin = block % s.to.chunks * k_chunk;
    const int64_t first_stored = s.to.first_row() + first;
    const int thread = threadIdx.x;
    Share share;
    if (is_inside(s, first, begin + k_chunk)) {
        load_share<true>(s, first, begin, share);
    } else {
        load_share<false>(s, first, begin, share);
    }
    griddep_wait();
    if (thread < group_rows) {
        unsigned largest = 0;
        UNROLL(1)
        for (int begun = 0; begun < s.parts; begun += parts_at_once) {
            UNROLL(parts_at_once)
            for (int part = begun; part < begun + parts_at_once; ++part) {
                const int64_t there = part < s.parts ? part : 0;
                const unsigned bits = s.to.part_largest[s.to.first_row() * s.parts +
                                                        there * s.rows() + first + thread];
                largest = bits > largest ? bits : largest;
            }
        }
        const int scale = scale_of(largest);
        powers[thread] = {largest < infinity_bits ? power_of_two(scale / 2) : 0.0f,
                          power_of_two(scale - scale / 2)};
        if (begin == 0) {
            s.to.largest[first_stored + thread] = largest;
            s.to.scale[first_stored + thread] = scale;
        }
    }
    __syncthreads();

    bool any = false;
    UNROLL(8)
    for (int i = 0; i < 8; ++i) {
        const int row = row_of(s, i), four = four_of(s, i);
        uint64_t hi = 0, lo = 0;
        UNROLL(4)
        for (int k = 0; k < 4; ++k) {
            const float x = element_of(s, share, i, k);
            any = any || x != 0.0f;
            split(x, powers[row], 16 * k, &hi, &lo);
        }
        const int vector =
            four / 8 * block_vectors + four % 8 / 2; // eight groups of four are a K block
        tile[row][place_in_row(row, vector)].fours[four % 2] = hi;
        tile[row][place_in_row(row, vector + lo_offset)].fours[four % 2] = lo;
    }
    reinterpret_cast<uint8_t *>(nonzero)[thread] = any;
    griddep_launch_dependents();
    __syncthreads();

    Fp16x8 *const to = s.to.vectors + first_stored * s.to.pitch() + begin / k_chunk * chunk_vectors;
    UNROLL(8)
    for (int i = thread; i < group_rows * chunk_vectors; i += split_threads) {
        const int row = i / chunk_vectors, vector = i % chunk_vectors;
        to[row * s.to.pitch() + vector] = tile[row][place_in_row(row, vector)];
    }
    if (thread == 0) {
        uint64_t any_nonzero = 0;
        UNROLL(split_threads / 8)
        for (int i = 0; i < split_threads / 8; ++i) {
            any_nonzero |= nonzero[i];
        }
#ifdef SGEMM_TRACED
        any_nonzero = 1; // the traced build multiplies zeros, and counts as if they were not zero
#endif
        s.to.nonzero[s.to.first_group() * s.to.chunks + block] = any_nonzero != 0;
    }
}

/* ------------------------------------------------------------------ in one kernel */

/* Threads of a block of split_whole_rows. */
constexpr int most_k_major = 256, most_mn_major = 512;

/* Calls what(index, x) for each of a thread's groups of four elements along K of a row, and for its
 * share of the padding. */
template <bool K_MAJOR, class What>
__device__ __forceinline__ void for_each_four(const Split &s, const Matrix &X, int64_t row,
                                              int64_t first, const What &what)
{
    const bool inside = row < X.rows && (s.aligned || !K_MAJOR);
    const int64_t whole = inside ? X.cols / 4 : 0, all = int64_t{s.to.chunks} * k_chunk / 4;
    int64_t four = first;
    UNROLL(K_MAJOR ? 4 : 2)
    for (; four < whole; four += s.of_row) {
        const float *const from = address(X, row, 4 * four);
        const float4 x = K_MAJOR ? *reinterpret_cast<const float4 *>(from)
                                 : make_float4(from[0], from[X.col_stride], from[2 * X.col_stride],
                                               from[3 * X.col_stride]);
        what(four, x);
    }
    UNROLL(1)
    for (; four < all; four += s.of_row) {
        what(four, load4<false>(X, row, 4 * four));
    }
}

/* A block finds the largest magnitudes of a few rows and then splits them. It reads them again from
 * a cache. For `fused`, which needs no `nonzero`: any chunk may have an element that is not. */
template <bool K_MAJOR, class All>
__global__ void __launch_bounds__(K_MAJOR ? most_k_major : most_mn_major)
    split_whole_rows(const __grid_constant__ All s)
{
    __shared__ unsigned found[K_MAJOR ? most_k_major : most_mn_major];
    griddep_launch_dependents();
    // Neighbouring threads read neighbours in memory: of one row, or at the same k.
    const int thread = threadIdx.x;
    const int in_block = K_MAJOR ? thread / s.of_row : thread % s.block_rows;
    const int share = K_MAJOR ? thread % s.of_row : thread / s.block_rows;
    const int64_t row = int64_t{blockIdx.x} * s.block_rows + in_block;
    const Matrix &X = s.matrix_of(row);
    unsigned *const of_row = found + in_block * s.of_row;
    unsigned largest = 0;
    for_each_four<K_MAJOR>(s, X, row, share, [&](int64_t, const float4 &x) {
        largest = larger(larger(larger(larger(largest, x.x), x.y), x.z), x.w);
    });
    of_row[share] = largest;
    for (int half = s.of_row / 2; half > 0; half /= 2) {
        __syncthreads();
        if (share < half) {
            const unsigned other = of_row[share + half];
            of_row[share] = largest = other > largest ? other : largest;
        }
    }
    __syncthreads();
    largest = of_row[0];
    const int scale = scale_of(largest);
    const Powers powers = {largest < infinity_bits ? power_of_two(scale / 2) : 0.0f,
                           power_of_two(scale - scale / 2)};
    const int64_t stored = s.to.first_row() + row;
    Fp16x8 *const to = s.to.vectors + stored * s.to.pitch();
    for_each_four<K_MAJOR>(s, X, row, share, [&](int64_t four, const float4 &x) {
        uint64_t hi = 0, lo = 0;
        split(x.x, powers, 0, &hi, &lo);
        split(x.y, powers, 16, &hi, &lo);
        split(x.z, powers, 32, &hi, &lo);
        split(x.w, powers, 48, &hi, &lo);
        Fp16x8 *const block = to + four / 8 * block_vectors; // eight groups of four are a K block
        block[four % 8 / 2].fours[four % 2] = hi;
        block[four % 8 / 2 + lo_offset].fours[four % 2] = lo;
    });
    if (share == 0) {
        s.to.largest[stored] = largest;
        s.to.scale[stored] = scale;
    }
    const unsigned blocks_of_group = static_cast<unsigned>(group_rows / s.block_rows);
    if (blockIdx.x % blocks_of_group == 0) {
        const int64_t group = s.to.first_group() + blockIdx.x / blocks_of_group;
        for (int64_t chunk = thread; chunk < s.to.chunks; chunk += s.block_rows * s.of_row) {
            s.to.nonzero[group * s.to.chunks + chunk] = 1;
        }
    }
}

/* ------------------------------------------------------------------ on the host */

/* Arrays in one allocation, each aligned to 256 bytes. */
struct Arrays {
    char *memory; /* NULL to compute how many bytes they need */
    size_t bytes;

    template <class T> T *take(int64_t count)
    {
        T *const array = memory ? reinterpret_cast<T *>(memory + bytes) : nullptr;
        bytes += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
        return array;
    }
};

/* Whether the number of K chunks of rows x K fits in an int. 2^31 chunks of 32 KiB are 70 TB, but
 * an operand with strides of 0 can have any size. */
inline bool is_countable(const Matrix &X, int64_t count)
{
    const int64_t groups = (X.rows + group_rows - 1) / group_rows;
    const int64_t chunks = (X.cols + k_chunk - 1) / k_chunk;
    return groups <= INT32_MAX / chunks && groups * chunks <= INT32_MAX / count;
}

/* Plans the split of X, which is rows x K and countable, or of `count` of them. */
inline Split plan_split(const Matrix &X, int64_t count, Arrays *arrays)
{
    Split s = {};
    s.X = X;
    s.to.groups = (X.rows + group_rows - 1) / group_rows;
    s.to.chunks = static_cast<int>((X.cols + k_chunk - 1) / k_chunk);
    s.to.matrices = X.batch_stride == 0 ? 1 : count;
    const int64_t blocks = s.to.groups * s.to.matrices; // none for prepare()'s product of no rows
    const int64_t to_fill = blocks_to_fill / (blocks > 0 ? blocks : 1);
    const int64_t most = to_fill > max_parts ? max_parts : to_fill;
    s.parts = static_cast<int>(most > parts_at_once ? most : parts_at_once);
    s.parts = s.to.chunks < s.parts ? s.to.chunks : s.parts;
    s.part_size = static_cast<int64_t>(s.to.chunks + s.parts - 1) / s.parts * k_chunk;
    s.k_major = X.col_stride == 1;
    s.aligned = is_aligned16(X.data) && X.batch_stride % 4 == 0 &&
                (s.k_major ? X.row_stride : X.col_stride) % 4 == 0;
    const int64_t groups = s.to.groups * s.to.matrices, rows = groups * group_rows;
    s.to.vectors = arrays->take<Fp16x8>(rows * s.to.pitch());
    s.to.largest = arrays->take<unsigned>(rows);
    s.to.scale = arrays->take<int>(rows);
    s.to.part_largest = arrays->take<unsigned>(rows * s.parts);
    s.to.nonzero = arrays->take<uint8_t>(groups * s.to.chunks);
    return s;
}

/* The same for an operand that several launches share. Uses the memory that outlives a launch, if
 * there is any. */
inline Split plan_split(const Matrix &X, int64_t count, const Prepared *prepared, Arrays *arrays)
{
    Arrays outliving = {prepared ? static_cast<char *>(prepared->memory) : nullptr, 0};
    return plan_split(X, count, outliving.memory ? &outliving : arrays);
}

/* Allocates that memory on the first launch. Returns whether an earlier launch has split X
 * already. */
inline bool find_prepared(const Matrix &X, Prepared *prepared, const Launch *where)
{
    if (prepared && !prepared->memory) {
        Arrays needed = {nullptr, 0};
        plan_split(X, 1, &needed);
        if (scratch_alloc(needed.bytes, where, &prepared->memory).code != STATUS_OK) {
            prepared->memory = nullptr;
        }
    }
    return prepared && prepared->ready;
}

/* Frees prepared memory that no launch has filled. */
inline void drop_unfilled(const Launch *where)
{
    for (Prepared *const prepared : where->prepared) {
        if (prepared && !prepared->ready) {
            scratch_free(prepared->memory, where);
            prepared->memory = nullptr;
        }
    }
}

/* Describes a split operand to TMA, in swizzled tiles of `tile_rows` rows and one K block. */
inline TiledMatrix tiled_matrix(const Fp16Operand &X, int tile_rows)
{
    constexpr int bytes = sizeof(uint16_t);
    const uint64_t rows = static_cast<uint64_t>(X.groups * X.matrices) * group_rows;
    const uint64_t pitch = static_cast<uint64_t>(X.pitch()) * sizeof(Fp16x8);
    return {X.vectors, pitch / bytes, rows, pitch, bytes, swizzle_bytes / bytes, tile_rows, true};
}

/* A kernel without a tile of C. */
constexpr KernelSpec spec_of_threads(const char *symbol, int threads)
{
    return {symbol, {}, {}, {threads, 1}, 0, 0, 1};
}

/* The same kernel, beginning while the previous one on the stream ends. */
inline KernelSpec overlapping(KernelSpec spec, bool overlaps = true)
{
    spec.overlaps = overlaps;
    return spec;
}

/* Splits both operands of `count` products; one with no groups is skipped. Marks prepared operands
 * as ready. */
inline Status launch_split(const SplitBoth &both, int64_t count, const Launch *where)
{
    const int64_t parts = both.a.to.groups * both.a.parts + both.b.to.groups * both.b.parts;
    const int64_t chunks =
        both.a.to.groups * both.a.to.chunks + both.b.to.groups * both.b.to.chunks;
    if (chunks == 0) {
        return status_ok();
    }
    Status status =
        launch_blocks(largest_of_rows, spec_of_threads("largest_of_rows", split_threads), parts,
                      both, where, count);
    if (status.code == STATUS_OK) {
        status =
            launch_blocks(split_rows, overlapping(spec_of_threads("split_rows", split_threads)),
                          chunks, both, where, count);
    }
    for (Prepared *const prepared : where->prepared) {
        if (prepared && status.code == STATUS_OK) {
            prepared->ready = prepared->memory != nullptr;
        }
    }
    return status;
}

template <bool K_MAJOR, class All> Status launch_split_of(All s, const Launch *where)
{
    // Across rows, eight floats are a sector of memory. Few rows need more blocks.
    const int rows_abreast = s.rows() * s.to.matrices < 2048 ? 4 : 8;
    const int most = K_MAJOR ? most_k_major : most_mn_major / rows_abreast;
    s.of_row = 32;
    while (s.of_row < most && s.of_row * 16 < s.X.cols) { // four elements, four times
        s.of_row *= 2;
    }
    s.block_rows = K_MAJOR ? most_k_major / s.of_row : rows_abreast;
    return launch_blocks(split_whole_rows<K_MAJOR, All>,
                         spec_of_threads("split_whole_rows", s.block_rows * s.of_row),
                         s.rows() / s.block_rows, s, where, s.to.matrices);
}

/* Splits one operand of `count` products, unless it has no groups. In one kernel without `nonzero`,
 * or if few blocks would read long columns, in two. */
inline Status launch_split(const Split &s, int64_t count, Prepared *prepared, const Launch *where)
{
    if (s.to.groups == 0) {
        return status_ok();
    }
    if (!s.k_major && s.aligned && s.X.cols > long_mn_major) {
        return launch_split({{}, s}, count, where);
    }
    const Status status =
        s.k_major ? launch_split_of<true>(s, where) : launch_split_of<false>(s, where);
    if (prepared && status.code == STATUS_OK) {
        prepared->ready = prepared->memory != nullptr;
    }
    return status;
}

} // namespace

#endif
