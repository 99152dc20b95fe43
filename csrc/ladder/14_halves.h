/* Each float32 as two halves: x = hi + lo, nearly.
 *
 * A half has 11 bits and a small range. So each *line* (a row of A, a column of B) is first scaled by
 * a power of two that takes its largest magnitude to [2^14, 2^15): nothing overflows, and scaling is
 * exact. Then hi = half(x) and lo = half(x - hi) together keep 22 bits of x, or all that lies above
 * 2^-25, which is why small elements of a line are a matter of 14_certify.h.
 *
 * Both operands are written alike: lines along the depth, filled up with zeros to a multiple of 128
 * lines and of 64 of the depth. What layout A and B had, and where they end, is of no interest from here
 * on. */
#ifndef SGEMM_KERNELS_14_HALVES_H
#define SGEMM_KERNELS_14_HALVES_H

#include "06_quad.h"
#include "14_tensor_cores.h"

namespace {

constexpr int group_lines = 128, stretch = 64; // whose halves are written by one block
constexpr int block_depth = 32;                // of a stretch, whose hi and lo lie side by side
constexpr int low_chunks = 4;                  // from the hi of 32 elements to their lo
constexpr int block_chunks = 2 * low_chunks;   // of 32 elements: [hi 32 | lo 32]
constexpr int line_chunks = 2 * block_chunks;  // of a line's stretch
constexpr int most_pieces = 8; // of the depth, whose largest magnitudes are found apart

/* Where in its line of a shared tile a chunk lies. That eight lines that are read together come from
 * different banks, each has the chunks of a block in an order of its own. */
__device__ __forceinline__ int swizzled(int line, int chunk)
{
    return chunk ^ line % 8;
}

/* An operand in halves. */
struct Halves {
    Chunk *lines;      // [line][stretch][block of 32][hi, lo]
    unsigned *largest; // of each line the magnitude's bits: not finite from `infinite` on
    int *scale;        // of each line the exponent of what it was multiplied by
    unsigned *pieces;  // as `largest`, by pieces of the depth
    uint8_t *filled;   // [group of lines][stretch]: whether there is an element that is not zero
    int64_t groups;
    int stretches; // counted by int: see countable()

    /* Chunks from line to line. */
    __host__ __device__ int64_t pitch() const
    {
        return static_cast<int64_t>(stretches) * line_chunks;
    }
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

/* x * 2^exponent, -252 to 254: no float32 is 2^163. Rounds once, if 2^-48 <= |x| < 2^128, or if the
 * result is no subnormal. */
__device__ __forceinline__ float times_power(float x, int exponent)
{
    const int half = exponent / 2;
    return x * power_of_two(half) * power_of_two(exponent - half);
}

/* ------------------------------------------------------------------ an operand to be split */

/* An operand as lines x depth, and where its halves go. */
struct Splitting {
    Matrix X;
    Halves to;
    int pieces;
    int64_t piece; // elements of the depth in one
    bool along;    // whether neighbours in memory are those along the depth, or those across it
    bool quads;    // whether they are loaded as float4

    __host__ __device__ int64_t lines() const
    {
        return to.groups * group_lines;
    }
};

/* Both operands, of which one kernel takes the one after the other. */
struct SplittingBoth {
    Splitting a, b;
};

constexpr int splitting_threads = 256;

/* Four neighbours in memory, the first of which is (row, col) of a matrix by rows; zeros beyond its
 * edges, if it may be there. */
template <bool INSIDE>
__device__ __forceinline__ float4 load_four(const Matrix &X, int64_t row, int64_t col)
{
    if (INSIDE) {
        return *reinterpret_cast<const float4 *>(address(X, row, col));
    }
    const int64_t left = row < X.rows ? X.cols - col : 0;
    return make_float4(left > 0 ? at(X, row, col) : 0.0f, left > 1 ? at(X, row, col + 1) : 0.0f,
                       left > 2 ? at(X, row, col + 2) : 0.0f,
                       left > 3 ? at(X, row, col + 3) : 0.0f);
}

/* Whether a group's lines, for a part of the depth, can be loaded as float4 with no look at edges. */
__device__ __forceinline__ bool loads_quads(const Splitting &s, int64_t first_line, int64_t end)
{
    return s.quads && first_line + group_lines <= s.X.rows && end <= s.X.cols;
}

/* ------------------------------------------------------------------ the largest magnitudes */

__device__ __forceinline__ unsigned larger(unsigned most, float x)
{
    const unsigned bits = bits_of(x) & INT32_MAX;
    return bits > most ? bits : most;
}

/* Along the depth a warp has 16 lines, and a thread four neighbours of each; across it a warp has all
 * lines at one depth, and a thread four of them. Each thread leaves what it finds of a line. */
constexpr int finders = 33; // of a line: a warp at most, and one place more against bank conflicts

template <bool INSIDE>
__device__ __forceinline__ void find_largest(const Splitting &s, int64_t first, int64_t begin,
                                             int64_t end, unsigned (&found)[group_lines][finders])
{
    constexpr int warps = splitting_threads / 32, warp_lines = group_lines / warps;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (s.along) {
        unsigned most[warp_lines] = {};
        for (int64_t k = begin + 4 * lane; k < end; k += 4 * 32) {
            UNROLL(warp_lines)
            for (int i = 0; i < warp_lines; ++i) {
                const float4 x = load_four<INSIDE>(s.X, first + warp * warp_lines + i, k);
                most[i] = larger(larger(larger(larger(most[i], x.x), x.y), x.z), x.w);
            }
        }
        UNROLL(warp_lines)
        for (int i = 0; i < warp_lines; ++i) {
            found[warp * warp_lines + i][lane] = most[i];
        }
    } else {
        const Matrix by_rows = transposed(s.X);
        unsigned most[4] = {};
        UNROLL(8)
        for (int64_t k = begin + warp; k < end; k += warps) {
            const float4 x = load_four<INSIDE>(by_rows, k, first + 4 * lane);
            most[0] = larger(most[0], x.x);
            most[1] = larger(most[1], x.y);
            most[2] = larger(most[2], x.z);
            most[3] = larger(most[3], x.w);
        }
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            found[4 * lane + i][warp] = most[i];
        }
    }
}

/* Of a group's lines, in a piece of the depth. */
__global__ void __launch_bounds__(splitting_threads) largest_of_lines(const SplittingBoth both)
{
    __shared__ unsigned found[group_lines][finders];
    const int64_t blocks_of_a = both.a.to.groups * both.a.pieces;
    const Splitting &s = blockIdx.x < blocks_of_a ? both.a : both.b;
    const int64_t block = blockIdx.x < blocks_of_a ? blockIdx.x : blockIdx.x - blocks_of_a;
    const int64_t piece = block / s.to.groups, first = block % s.to.groups * group_lines;
    const int64_t begin = piece * s.piece;
    const int64_t end = begin + s.piece < s.X.cols ? begin + s.piece : s.X.cols;
    if (loads_quads(s, first, end) && (end % 4 == 0 || !s.along)) {
        find_largest<true>(s, first, begin, end, found);
    } else {
        find_largest<false>(s, first, begin, end, found);
    }
    let_next_kernel_begin();
    __syncthreads();
    if (threadIdx.x < group_lines) {
        const int count = s.along ? 32 : splitting_threads / 32;
        unsigned most = 0;
        UNROLL(8)
        for (int i = 0; i < count; ++i) {
            const unsigned bits = found[threadIdx.x][i];
            most = bits > most ? bits : most;
        }
        s.to.pieces[piece * s.lines() + first + threadIdx.x] = most;
    }
}

/* ------------------------------------------------------------------ hi and lo */

/* What a line's elements are multiplied by, one after the other: no float32 is 2^163. */
struct Powers {
    float first, second;
};

/* The two halves of x in its line's units, each at bit `shift` of the four that it belongs to. Lines
 * that are not finite, whose powers are zeros, become zeros, which certify nothing. */
__device__ __forceinline__ void split(float x, Powers powers, int shift, uint64_t *hi, uint64_t *lo)
{
    const float scaled = powers.first == 0.0f ? 0.0f : x * powers.first * powers.second;
    const uint16_t high = half_of(scaled);
    const uint16_t low = half_of(scaled - float_of_half(high)); // the difference is exact
    *hi |= static_cast<uint64_t>(high) << shift;
    *lo |= static_cast<uint64_t>(low) << shift;
}

/* A thread's share of 128 lines x 64 of the depth: 8 times four neighbours in memory. */
typedef float Share[8][4];

template <bool INSIDE>
__device__ __forceinline__ void load_share(const Splitting &s, int64_t first, int64_t begin,
                                           Share &share)
{
    const Matrix by_rows = s.along ? s.X : transposed(s.X);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    UNROLL(8)
    for (int i = 0; i < 8; ++i) {
        // Along the depth a warp loads two lines at a time; across it all lines at one depth.
        const int64_t row =
            s.along ? first + thread / 16 + 16 * i : begin + 4 * (warp + i / 4 * 8) + i % 4;
        const int64_t col = s.along ? begin + thread % 16 * 4 : first + 4 * lane;
        const float4 x = load_four<INSIDE>(by_rows, row, col);
        share[i][0] = x.x, share[i][1] = x.y, share[i][2] = x.z, share[i][3] = x.w;
    }
}

/* The eight fours of a share that are neighbours along the depth: their lines, and which of the
 * lines' fours they are. */
__device__ __forceinline__ int line_of(const Splitting &s, int i)
{
    return s.along ? threadIdx.x / 16 + 16 * i : threadIdx.x % 32 * 4 + i % 4;
}
__device__ __forceinline__ int four_of(const Splitting &s, int i)
{
    return s.along ? threadIdx.x % 16 : threadIdx.x / 32 + i / 4 * 8;
}
__device__ __forceinline__ float element_of(const Splitting &s, const Share &share, int i, int k)
{
    return s.along ? share[i][k] : share[i / 4 * 4 + k][i % 4];
}

/* Where in its line of the block's tile a chunk lies: so that the fours of eight lines come to
 * different banks whether these are neighbours or every fourth. */
__device__ __forceinline__ int place_in_line(int line, int chunk)
{
    return chunk ^ (line + line / 4) % 8;
}

/* A group's stretch by a block, by way of shared memory, so that its lines are written in order
 * whichever way they are read. */
__global__ void __launch_bounds__(splitting_threads) split_tiles(const SplittingBoth both)
{
    __shared__ Chunk tile[group_lines][line_chunks];
    __shared__ Powers powers[group_lines];
    __shared__ uint64_t filled[splitting_threads / 8]; // a byte for each thread
    const int64_t blocks_of_a = both.a.to.groups * both.a.to.stretches;
    const Splitting &s = blockIdx.x < blocks_of_a ? both.a : both.b;
    const int64_t block = blockIdx.x < blocks_of_a ? blockIdx.x : blockIdx.x - blocks_of_a;
    const int64_t first = block / s.to.stretches * group_lines;
    const int64_t begin = block % s.to.stretches * stretch;
    const int thread = threadIdx.x;
    Share share;
    if (loads_quads(s, first, begin + stretch)) {
        load_share<true>(s, first, begin, share);
    } else {
        load_share<false>(s, first, begin, share);
    }
    wait_for_kernel_before();
    if (thread < group_lines) {
        unsigned most = 0;
        UNROLL(most_pieces)
        for (int piece = 0; piece < most_pieces; ++piece) {
            const int64_t there = piece < s.pieces ? piece : 0;
            const unsigned bits = s.to.pieces[there * s.lines() + first + thread];
            most = bits > most ? bits : most;
        }
        const int scale = scale_of(most);
        powers[thread] = {most < infinite ? power_of_two(scale / 2) : 0.0f,
                          power_of_two(scale - scale / 2)};
        if (begin == 0) {
            s.to.largest[first + thread] = most;
            s.to.scale[first + thread] = scale;
        }
    }
    __syncthreads();

    bool any = false;
    UNROLL(8)
    for (int i = 0; i < 8; ++i) {
        const int line = line_of(s, i), four = four_of(s, i);
        uint64_t hi = 0, lo = 0;
        UNROLL(4)
        for (int k = 0; k < 4; ++k) {
            const float x = element_of(s, share, i, k);
            any = any || x != 0.0f;
            split(x, powers[line], 16 * k, &hi, &lo);
        }
        const int chunk = four / 8 * block_chunks + four % 8 / 2; // eight fours are a block
        tile[line][place_in_line(line, chunk)].fours[four % 2] = hi;
        tile[line][place_in_line(line, chunk + low_chunks)].fours[four % 2] = lo;
    }
    reinterpret_cast<uint8_t *>(filled)[thread] = any;
    let_next_kernel_begin();
    __syncthreads();

    Chunk *const to = s.to.lines + first * s.to.pitch() + begin / stretch * line_chunks;
    UNROLL(8)
    for (int i = thread; i < group_lines * line_chunks; i += splitting_threads) {
        const int line = i / line_chunks, chunk = i % line_chunks;
        to[line * s.to.pitch() + chunk] = tile[line][place_in_line(line, chunk)];
    }
    if (thread == 0) {
        uint64_t tile_filled = 0;
        UNROLL(splitting_threads / 8)
        for (int i = 0; i < splitting_threads / 8; ++i) {
            tile_filled |= filled[i];
        }
#ifdef SGEMM_COUNTED
        tile_filled = 1; // what is counted stands for operands that are not zero
#endif
        s.to.filled[block] = tile_filled != 0;
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

/* Whether an int counts the stretches of lines x depth, of which there are some: 2^31 of 32 KiB are 70 TB,
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
    s.along = X.col_stride == 1;
    s.quads = is_aligned(X.data) && (s.along ? X.row_stride : X.col_stride) % 4 == 0;
    s.to.lines = parts->take<Chunk>(s.lines() * s.to.pitch());
    s.to.largest = parts->take<unsigned>(s.lines());
    s.to.scale = parts->take<int>(s.lines());
    s.to.pieces = parts->take<unsigned>(s.lines() * s.pieces);
    s.to.filled = parts->take<uint8_t>(s.to.groups * s.to.stretches);
    return s;
}

/* Of an operand that comes again: finds memory for its halves that outlives the launch, if there is
 * any. Returns whether they are in it already. */
inline bool find_prepared(const Matrix &X, Prepared *prepared, const Launch *where)
{
    if (prepared && !prepared->memory) {
        Parts needed = {nullptr, 0};
        plan_splitting(X, &needed);
        if (scratch_take(needed.bytes, where, &prepared->memory).code != STATUS_OK) {
            prepared->memory = nullptr;
        }
    }
    return prepared && prepared->ready;
}

/* Likewise plan_splitting, in that memory, or else in parts of the launch's own. */
inline Splitting plan_splitting(const Matrix &X, const Prepared *prepared, Parts *parts)
{
    Parts outliving = {prepared ? static_cast<char *>(prepared->memory) : nullptr, 0};
    return plan_splitting(X, outliving.memory ? &outliving : parts);
}

/* A kernel of this rung that is none of tiles of C by tiles of A and B. */
constexpr KernelSpec spec_of_threads(const char *symbol, int threads)
{
    return {symbol, {}, {}, {threads, 1}, 0, 0, 1, false, ""};
}

/* For a launch behind another of this product, or not. */
inline KernelSpec overlapping(KernelSpec spec, bool overlaps = true)
{
    spec.overlaps = overlaps;
    return spec;
}

/* Splits both operands, or the one of them that has lines; those that outlive the launch are then
 * ready. */
inline Status launch_splitting(const SplittingBoth &both, const Launch *where)
{
    const int64_t pieces = both.a.to.groups * both.a.pieces + both.b.to.groups * both.b.pieces;
    const int64_t tiles =
        both.a.to.groups * both.a.to.stretches + both.b.to.groups * both.b.to.stretches;
    if (tiles == 0) {
        return status_ok();
    }
    Status status =
        launch_blocks(largest_of_lines, spec_of_threads("largest_of_lines", splitting_threads),
                      pieces, both, where);
    if (status.code == STATUS_OK) {
        status = launch_blocks(split_tiles,
                               overlapping(spec_of_threads("split_tiles", splitting_threads)),
                               tiles, both, where);
    }
    for (int i = 0; i < 2 && where->prepared && status.code == STATUS_OK; ++i) {
        where->prepared[i].ready = where->prepared[i].memory != nullptr;
    }
    return status;
}

} // namespace

#endif
