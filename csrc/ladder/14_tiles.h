/* What is left of mma when the product of 14_mma.cu is understood: which stretches of K a block takes,
 * which chunks each thread copies, and which factors it reads. */
#ifndef SGEMM_KERNELS_14_TILES_H
#define SGEMM_KERNELS_14_TILES_H

#include "14_halves.h"

namespace {

/* A product by halves, and what is noted of its tiles of C. */
struct HalvesProduct {
    Sgemm p;
    Halves a, b;
    int *failed;     // of each tile: how many slots are filled, or `marked`
    uint16_t *place; // of each tile's slots: row * BN + column in the tile
};

/* The stretches of K in which neither operand's lines of a tile of C are all zero, one after the
 * other. */
template <class T> struct FilledStretches {
    static constexpr int most = (T::BN + group_lines - 1) / group_lines; // groups of a tile
    const uint8_t *a, *b[most];
    int now, stretches;
    bool next_is; // what look_ahead() found

    __device__ __forceinline__ FilledStretches(const HalvesProduct &q, const Origin &tile)
        : a(q.a.filled + tile.row / group_lines * q.a.stretches), now(-1), stretches(q.a.stretches)
    {
        UNROLL(most)
        for (int i = 0; i < most; ++i) {
            const int64_t group = tile.col / group_lines + i;
            b[i] = q.b.filled + (group < q.b.groups ? group : q.b.groups - 1) * stretches;
        }
        look_ahead();
        go_on();
    }
    __device__ __forceinline__ bool any() const
    {
        return now < stretches;
    }
    /* Asks for the next, some time before go_on() wants to know. */
    __device__ __forceinline__ void look_ahead()
    {
        next_is = now + 1 < stretches;
        if (next_is) {
            uint8_t filled = 0;
            UNROLL(most)
            for (int i = 0; i < most; ++i) {
                filled |= b[i][now + 1];
            }
            next_is = a[now + 1] & filled;
        }
    }
    __device__ __forceinline__ void go_on()
    {
        for (++now; any() && !next_is;) {
            look_ahead();
            ++now;
        }
    }
};

/* Begins to copy one half of the lines of a stretch, from the first on. A thread's chunks are at the
 * same place of lines that are a multiple of eight apart: they are swizzled alike. */
template <class T, int LINES>
__device__ __forceinline__ void bring(Chunk *to, const Chunk *from, int64_t pitch, int thread,
                                      int half)
{
    constexpr int step = T::threads / line_chunks;
    static_assert(step % 8 == 0, "lines a multiple of eight apart");
    const int line = half * LINES / 2 + thread / line_chunks, chunk = thread % line_chunks;
    from += line * pitch + chunk;
    to += line * line_chunks + swizzled(line, chunk);
    UNROLL(LINES / 2 / step)
    for (int i = 0; i < LINES / 2; i += step) {
        copy_chunk_async(to + i * line_chunks, from);
        from += step * pitch;
    }
}

/* What a thread reads of a stretch's tiles: the row that it names of ldmatrix's matrices. Of A four
 * make 16 lines x 16 of the depth, of B too, which are two factors of 8 columns. As chunks are
 * swizzled by exclusive or, so is the step from depth to depth, and from hi to lo. */
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
    /* 16 lines of A from the i-th sixteen on, their hi or their lo. */
    __device__ __forceinline__ void load_a(unsigned (&to)[4], int i, int depth, bool low) const
    {
        load_matrices(to, As + step_to(a, depth, low) + i * 16 * line_chunks);
    }
    /* All of the warp's columns of B. */
    __device__ __forceinline__ void load_b(unsigned (&to)[T::NI][2], int depth, bool low) const
    {
        UNROLL(T::NI / 2)
        for (int j = 0; j < T::NI; j += 2) {
            unsigned two[4];
            load_matrices(two, Bs + step_to(b, depth, low) + j * 8 * line_chunks);
            to[j][0] = two[0], to[j][1] = two[1];
            to[j + 1][0] = two[2], to[j + 1][1] = two[3];
        }
    }

  private:
    static __device__ __forceinline__ int step_to(int chunk, int depth, bool low)
    {
        return (chunk ^ (depth % 2 * 2 + low * low_chunks)) + depth / 2 * block_chunks;
    }
};

} // namespace

#endif
