/* Each float32 as two halves: x = hi + lo, nearly.
 *
 * A half has 11 bits and a small range. So each *line* (a row of A, a column of B) is first scaled by
 * a power of two that takes its largest magnitude to [2^14, 2^15): nothing overflows, and scaling is
 * exact. Then hi = half(x) and lo = half(x - hi) together keep 22 bits of x, or all that lies above
 * 2^-25, which is why small elements of a line are a matter of 12_certify.h.
 *
 * Both operands are written alike, as tiles of 128 lines by 64 of the depth, one after the other as
 * the product shall take them, filled up with zeros: what kind of layout A and B had, and where they
 * end, is of no interest from here on. */
#ifndef SGEMM_KERNELS_HALVES_H
#define SGEMM_KERNELS_HALVES_H

#include "06_quad.h"
#include "12_tensor_cores.h"

namespace {

constexpr int group_lines = 128, stretch = 64; // of a tile of halves, and of the depth
constexpr int line_chunks = 2 * stretch / 8;   // of a line in a tile: [hi 64 | lo 64]
constexpr int tile_chunks = group_lines * line_chunks;
constexpr int most_pieces = 8; // of the depth, whose largest magnitudes are found apart

/* Where in its line of a tile a chunk lies: 0 to 7 is hi, 8 to 15 lo. That eight lines that are read
 * together come from different banks, each has its chunks in an order of its own. */
__device__ __forceinline__ int swizzled(int line, int chunk)
{
    return chunk ^ line % 8;
}

/* An operand in halves. */
struct Halves {
    Chunk *tiles;      // [group of lines][stretch][line][chunk]
    unsigned *largest; // of each line the magnitude's bits: not finite from `infinite` on
    unsigned *pieces;  // the same, by pieces of the depth
    uint8_t *filled; // [group of lines][stretch]: whether the tile has an element that is not zero
    int64_t groups;
    int stretches; // tiles are counted by int: see countable()
};

constexpr unsigned infinite = 0x7f800000;

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

/* 2^exponent, -126 to 127. */
__device__ __forceinline__ float power_of_two(int exponent)
{
    const unsigned bits = static_cast<unsigned>(exponent + 127) << 23;
#ifdef __CUDACC__
    return __uint_as_float(bits);
#else
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
#endif
}

/* The exponent of the power of two that a line is scaled by: -113 to 163. */
__device__ __forceinline__ int scale_of(unsigned largest)
{
    if (largest == 0 || largest >= infinite) {
        return 0;
    }
    int exponent = static_cast<int>(largest >> 23) - 127;
    if (exponent == -127) { // subnormal: its highest bit is the 24th of a normal one
        exponent = -150;
        for (unsigned rest = largest; rest; rest >>= 1) {
            ++exponent;
        }
    }
    return 14 - exponent;
}

/* x * 2^exponent, -252 to 254: no float32 is 2^163. Rounds once, if 1 <= |x| < 2^128, or if the
 * result is no subnormal. */
__device__ __forceinline__ float times_power(float x, int exponent)
{
    const int half = exponent / 2;
    return x * power_of_two(half) * power_of_two(exponent - half);
}

/* ------------------------------------------------------------------ the largest magnitudes */

/* An operand as lines x depth, and where its halves go. */
struct Splitting {
    Matrix X;
    Halves to;
    int pieces;
    int64_t piece; // elements of the depth in one

    __host__ __device__ int64_t lines() const
    {
        return to.groups * group_lines;
    }
};

/* Both operands, of which one kernel takes the one after the other. */
struct SplittingBoth {
    Splitting a, b;
};

constexpr int side = 32; // of the square that a block takes at a time

/* Of `side` lines and a piece of the depth. Neighbours in memory are read by neighbouring threads. */
__global__ void __launch_bounds__(side *side) largest_of_lines(const SplittingBoth both)
{
    __shared__ unsigned found[side][side + 1];
    const int64_t blocks_of_a = both.a.lines() / side * both.a.pieces;
    const Splitting &s = blockIdx.x < blocks_of_a ? both.a : both.b;
    const int64_t block = blockIdx.x < blocks_of_a ? blockIdx.x : blockIdx.x - blocks_of_a;
    const int64_t piece = block / (s.lines() / side), first = block % (s.lines() / side) * side;
    const int x = threadIdx.x % side, y = threadIdx.x / side;
    const bool along_depth = s.X.col_stride == 1;
    const int64_t line = first + (along_depth ? y : x);
    const int64_t begin = piece * s.piece, end = begin + s.piece;
    const int64_t depth = end < s.X.cols ? end : s.X.cols;
    unsigned most = 0;
    if (line < s.X.rows) {
        UNROLL(8)
        for (int64_t k = begin + (along_depth ? x : y); k < depth; k += side) {
            const unsigned bits = bits_of(at(s.X, line, k)) & INT32_MAX;
            most = bits > most ? bits : most;
        }
    }
    found[along_depth ? y : x][along_depth ? x : y] = most;
    __syncthreads();
    if (threadIdx.x < side) {
        for (int i = 0; i < side; ++i) {
            const unsigned bits = found[threadIdx.x][i];
            most = bits > most ? bits : most;
        }
        s.to.pieces[piece * s.lines() + first + threadIdx.x] = most;
    }
}

/* ------------------------------------------------------------------ hi and lo */

constexpr int splitting_threads = 256;

/* Four elements of a line, from depth k on; zeros beyond the edges. */
__device__ __forceinline__ float4 load_four(const Matrix &X, int64_t line, int64_t k, bool quads)
{
    const int64_t left = line < X.rows ? X.cols - k : 0;
    if (quads && left >= 4) {
        return *reinterpret_cast<const float4 *>(address(X, line, k));
    }
    return make_float4(left > 0 ? at(X, line, k) : 0.0f, left > 1 ? at(X, line, k + 1) : 0.0f,
                       left > 2 ? at(X, line, k + 2) : 0.0f, left > 3 ? at(X, line, k + 3) : 0.0f);
}

/* The two halves of x in units of 2^-scale, each at bit `shift` of the four that it belongs to. */
__device__ __forceinline__ void split(float x, int scale, int shift, uint64_t *hi, uint64_t *lo)
{
    const float scaled = times_power(x, scale);
    const uint16_t high = half_of(scaled);
    const uint16_t low = half_of(scaled - float_of_half(high)); // the difference is exact
    *hi |= static_cast<uint64_t>(high) << shift;
    *lo |= static_cast<uint64_t>(low) << shift;
}

/* A tile of halves by a block, by way of shared memory, so that all of it is written in order
 * whichever way it is read. Lines that are not finite become zeros, which certify nothing. */
__global__ void __launch_bounds__(splitting_threads) split_tiles(const SplittingBoth both)
{
    __shared__ Chunk tile[group_lines][line_chunks];
    __shared__ unsigned largest[group_lines];
    __shared__ uint8_t filled[splitting_threads];
    const int64_t blocks_of_a = both.a.to.groups * both.a.to.stretches;
    const Splitting &s = blockIdx.x < blocks_of_a ? both.a : both.b;
    const int64_t block = blockIdx.x < blocks_of_a ? blockIdx.x : blockIdx.x - blocks_of_a;
    const int64_t first = block / s.to.stretches * group_lines;
    const int64_t begin = block % s.to.stretches * stretch;
    const int thread = threadIdx.x;
    if (thread < group_lines) {
        unsigned most = 0;
        for (int piece = 0; piece < s.pieces; ++piece) {
            const unsigned bits = s.to.pieces[piece * s.lines() + first + thread];
            most = bits > most ? bits : most;
        }
        largest[thread] = most;
        if (begin == 0) {
            s.to.largest[first + thread] = most;
        }
    }
    __syncthreads();

    // Along the depth a warp reads two lines; across, eight lines at 16 depths.
    const bool along_depth = s.X.col_stride == 1;
    const bool quads = along_depth && is_aligned(s.X.data) && s.X.row_stride % 4 == 0;
    constexpr int fours = stretch / 4;                     // of a line
    constexpr int lines_along = splitting_threads / fours; // at a time
    constexpr int lines_across = splitting_threads / 32 * 8, across = group_lines / lines_across;
    bool any = false;
    UNROLL(8)
    for (int i = 0; i < group_lines * fours / splitting_threads; ++i) {
        const int line = along_depth ? thread / fours + i * lines_along
                                     : thread / 32 * 8 + thread % 8 + i % across * lines_across;
        const int four = along_depth ? thread % fours : thread % 32 / 8 + i / across * 4;
        float4 x = load_four(s.X, first + line, begin + 4 * four, quads);
        any = any || x.x != 0.0f || x.y != 0.0f || x.z != 0.0f || x.w != 0.0f;
        const unsigned most = largest[line];
        if (most >= infinite) {
            x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        uint64_t hi = 0, lo = 0;
        split(x.x, scale_of(most), 0, &hi, &lo);
        split(x.y, scale_of(most), 16, &hi, &lo);
        split(x.z, scale_of(most), 32, &hi, &lo);
        split(x.w, scale_of(most), 48, &hi, &lo);
        tile[line][swizzled(line, four / 2)].fours[four % 2] = hi;
        tile[line][swizzled(line, four / 2 + 8)].fours[four % 2] = lo;
    }
    filled[thread] = any;
    __syncthreads();

    Chunk *const to = s.to.tiles + block * tile_chunks;
    UNROLL(tile_chunks / splitting_threads)
    for (int i = thread; i < tile_chunks; i += splitting_threads) {
        to[i] = tile[i / line_chunks][i % line_chunks];
    }
    if (thread == 0) {
        int tile_filled = 0;
        UNROLL(16)
        for (int i = 0; i < splitting_threads; ++i) {
            tile_filled |= filled[i];
        }
#ifdef SGEMM_COUNTED
        tile_filled = 1; // what is counted stands for operands that are not zero
#endif
        s.to.filled[block] = static_cast<uint8_t>(tile_filled);
    }
}

/* ------------------------------------------------------------------ on the host */

/* Parts of one piece of memory, one after the other, each aligned to 256 bytes. */
struct Parts {
    char *memory; // NULL to learn how many bytes they need
    size_t bytes;

    template <class T> T *take(int64_t count)
    {
        T *const part = memory ? reinterpret_cast<T *>(memory + bytes) : nullptr;
        bytes += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
        return part;
    }
};

/* Whether an int counts the tiles of lines x depth, of which there are some: 2^31 of them are 70 TB,
 * though an operand whose elements are all the same one may be of any size. */
inline bool countable(const Matrix &X)
{
    const int64_t groups = (X.rows + group_lines - 1) / group_lines;
    const int64_t stretches = (X.cols + stretch - 1) / stretch;
    return groups <= INT32_MAX / stretches;
}

/* X is lines x depth, and countable. */
inline Splitting plan_splitting(const Matrix &X, Parts *parts)
{
    Splitting s = {};
    s.X = X;
    s.to.groups = (X.rows + group_lines - 1) / group_lines;
    s.to.stretches = static_cast<int>((X.cols + stretch - 1) / stretch);
    s.pieces = s.to.stretches < most_pieces ? s.to.stretches : most_pieces;
    s.piece = static_cast<int64_t>(s.to.stretches + s.pieces - 1) / s.pieces * stretch;
    s.to.tiles = parts->take<Chunk>(s.to.groups * s.to.stretches * tile_chunks);
    s.to.largest = parts->take<unsigned>(s.lines());
    s.to.pieces = parts->take<unsigned>(s.lines() * s.pieces);
    s.to.filled = parts->take<uint8_t>(s.to.groups * s.to.stretches);
    return s;
}

/* A kernel of this rung that is none of tiles of C by tiles of A and B. */
constexpr KernelSpec spec_of_threads(const char *symbol, int threads)
{
    return {symbol, {}, {}, {threads, 1}, 0, 0, 1, false, ""};
}

inline Status launch_splitting(const SplittingBoth &both, const Launch *where)
{
    const int64_t squares =
        (both.a.lines() * both.a.pieces + both.b.lines() * both.b.pieces) / side;
    const int64_t tiles =
        both.a.to.groups * both.a.to.stretches + both.b.to.groups * both.b.to.stretches;
    const Status status = launch_blocks(
        largest_of_lines, spec_of_threads("largest_of_lines", side * side), squares, both, where);
    return status.code != STATUS_OK
               ? status
               : launch_blocks(split_tiles, spec_of_threads("split_tiles", splitting_threads),
                               tiles, both, where);
}

} // namespace

#endif
