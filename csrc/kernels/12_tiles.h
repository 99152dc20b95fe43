/* What is left of mma when the product of 12_mma.cu is understood: which stretches of K a block takes,
 * which chunks each thread copies, and which factors it reads. */
#ifndef SGEMM_KERNELS_12_TILES_H
#define SGEMM_KERNELS_12_TILES_H

#include "12_halves.h"

namespace {

/* A product by halves, and what is noted of its tiles of C. */
struct HalvesProduct {
    Sgemm p;
    Halves a, b;
    int *failed;     // of each tile: how many slots are filled, or `marked`
    uint16_t *place; // of each tile's slots: row * BN + column in the tile
};

/* The stretches of K in which neither operand's tile of halves is all zero, one after the other. */
struct FilledStretches {
    const HalvesProduct &q;
    int a, b; // of each operand, the number of its group's first tile
    int now;
    bool next_is; // what look_ahead() found

    __device__ __forceinline__ FilledStretches(const HalvesProduct &q, const Origin &tile)
        : q(q), a(static_cast<int>(tile.row / group_lines) * q.a.stretches),
          b(static_cast<int>(tile.col / group_lines) * q.b.stretches), now(-1)
    {
        look_ahead();
        go_on();
    }
    __device__ __forceinline__ bool any() const
    {
        return now < q.a.stretches;
    }
    /* Asks for the next, some time before go_on() wants to know. */
    __device__ __forceinline__ void look_ahead()
    {
        next_is = now + 1 < q.a.stretches && (q.a.filled[a + now + 1] & q.b.filled[b + now + 1]);
    }
    __device__ __forceinline__ void go_on()
    {
        for (++now; any() && !next_is;) {
            look_ahead();
            ++now;
        }
    }
    /* The present stretch, from this line of A or of B on. */
    __device__ __forceinline__ const Chunk *of_a(int64_t line) const
    {
        return q.a.tiles + static_cast<int64_t>(a + now) * tile_chunks +
               line % group_lines * line_chunks;
    }
    __device__ __forceinline__ const Chunk *of_b(int64_t line) const
    {
        return q.b.tiles + static_cast<int64_t>(b + now) * tile_chunks +
               line % group_lines * line_chunks;
    }
};

/* Begins to copy one half of a stretch of one operand, which lies there as shared memory shall have
 * it. */
template <class T, int LINES>
__device__ __forceinline__ void bring(Chunk *to, const Chunk *from, int thread, int half)
{
    constexpr int chunks = LINES * line_chunks / 2;
    UNROLL(chunks / T::threads)
    for (int i = half * chunks; i < (half + 1) * chunks; i += T::threads) {
        copy_chunk_async(to + i + thread, from + i + thread);
    }
}

/* What a thread reads of a stretch's tiles: the row that it names of ldmatrix's matrices. Of A four
 * make 16 lines x 16 of the depth, of B too, which are two factors of 8 columns. As chunks are
 * swizzled by exclusive or, so is the step from depth to depth. */
template <class T> struct Factors {
    const Chunk *As, *Bs;
    int a, b; // the chunks of the first depth's hi

    __device__ __forceinline__ Factors(const Chunk *As, const Chunk *Bs, int thread)
        : As(As), Bs(Bs)
    {
        const int warp = thread / 32, lane = thread % 32;
        a = (warp / T::warps_across * T::WM + lane % 16) * line_chunks + swizzled(lane, lane / 16);
        b = (warp % T::warps_across * T::WN + lane / 16 * 8 + lane % 8) * line_chunks +
            swizzled(lane, lane / 8 % 2);
        not_known_before(a);
        not_known_before(b);
    }
    /* 16 lines of A from the i-th sixteen on; `low` is 8 for lo, 0 for hi. */
    __device__ __forceinline__ void load_a(unsigned (&to)[4], int i, int depth, int low) const
    {
        load_matrices(to, As + (a ^ 2 * depth) + i * 16 * line_chunks + low);
    }
    /* All of the warp's columns of B. */
    __device__ __forceinline__ void load_b(unsigned (&to)[T::NI][2], int depth, int low) const
    {
        UNROLL(T::NI / 2)
        for (int j = 0; j < T::NI; j += 2) {
            unsigned two[4];
            load_matrices(two, Bs + (b ^ 2 * depth) + j * 8 * line_chunks + low);
            to[j][0] = two[0], to[j][1] = two[1];
            to[j + 1][0] = two[2], to[j + 1][1] = two[3];
        }
    }
};

} // namespace

#endif
