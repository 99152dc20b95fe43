/* Tiles for `fused` and `fixed`: a producer thread loads A in float32 and B in fp16 pairs, and each
 * consumer warpgroup splits 64 rows of A in registers and multiplies them. */
#ifndef SGEMM_KERNELS_FUSED_TILES_H
#define SGEMM_KERNELS_FUSED_TILES_H

#include "fused_slices.h"

namespace {

/* Consumer warpgroups compute 64 x BN results each. A is K-major or MN_MAJOR. */
template <class GROUP, int STAGES, bool MN_MAJOR> struct SplitTile {
    typedef GROUP Group;
    static constexpr bool symmetric = Group::symmetric;
    static constexpr int stacked = 1;
    static constexpr int groups = Group::stacked, BM = groups * Group::BM, BN = Group::BN;
    static constexpr int BK = k_block;
    static constexpr int WM = Group::WM, WN = Group::WN, stages = STAGES;
    static constexpr bool mn_major = MN_MAJOR;
    static constexpr int threads = groups * Group::threads; // of the consumers
    static constexpr int producers = 128, block_threads = threads + producers;

    struct Shared {
        float As[stages][BM * k_block];        // (BM, 32), or BM / 32 times (32, 32)
        Fp16x8 Bs[stages][BN * block_vectors]; // (BN, 32): hi, lo
        Mbarrier full[stages], empty[stages];  // of a stage: loaded, read by all consumers
        Checking<Group> check[groups];
    };
};

/* ------------------------------------------------------------------ the producer */

/* Loads the K blocks of a work into the stages. `to` is the next stage. Only the first loads of A
 * need not wait for the kernel that splits B. */
template <class T, class Q>
KERNEL_BODY void load_work(const Q &q, const typename Q::Unit &work, bool is_first,
                           RingPosition<T::stages> &to, typename T::Shared &shared)
{
    constexpr int b_step = swizzle_bytes / static_cast<int>(sizeof(uint16_t)); // of a K block
    const Origin tile = tile_computed<T>(product_of(q, work).p.C, work.tile);
    const int row = static_cast<int>(tile.row), first_of_a = first_line(q, work);
    const int col = static_cast<int>(tile.col + first_col(q, work));
    const auto load_a = [&](int block, int stage) {
        mbarrier_arrive_expect_tx(shared.full + stage, sizeof shared.As[0] + sizeof shared.Bs[0]);
        const int k = block * k_block;
        if constexpr (T::mn_major) {
            UNROLL(T::BM / line_floats)
            for (int i = 0; i < T::BM; i += line_floats) {
                load_lines(shared.As[stage] + i * k_block, q, row + i, first_of_a, k,
                           shared.full + stage);
            }
        } else {
            load_lines(shared.As[stage], q, k, first_of_a, row, shared.full + stage);
        }
    };
    const auto load_b = [&](int block, int stage) {
        tma_load_2d(shared.Bs[stage], q.b, block * b_step, col, shared.full + stage);
    };
    int block = 2 * work.begin;
    const int end = 2 * work.end;
    if (is_first) {
        const int first = block, filled = first + T::stages < end ? first + T::stages : end;
        UNROLL(1)
        for (; block < filled; ++block) {
            load_a(block, block - first);
        }
        griddep_wait();
        UNROLL(1)
        for (block = first; block < filled; ++block) {
            load_b(block, block - first);
            to.advance();
        }
    }
    UNROLL(1)
    for (; block < end; ++block) {
        mbarrier_wait(shared.empty + to.index, to.parity ^ 1);
        load_a(block, to.index);
        load_b(block, to.index);
        to.advance();
    }
}

/* ------------------------------------------------------------------ the consumers */

/* part = the product of a K chunk, whose B is in two stages. The order is that of mma. */
template <class T>
__device__ __forceinline__ void begin_products(const unsigned (&hi)[depths][4],
                                               const unsigned (&lo)[depths][4],
                                               const decltype(T::Shared::Bs) &Bs, int first,
                                               int second, float (&part)[T::Group::NI][4])
{
    const WgmmaFactor b[] = {WgmmaFactor(Bs[first]), WgmmaFactor(Bs[second])};
    const auto at = [&b](int depth, bool low) {
        const int vectors = depth % 2 * 2 + low * lo_offset;
        return b[depth / 2].from_byte(vectors * static_cast<int>(sizeof(Fp16x8)));
    };
    wgmma_fence();
    UNROLL(depths)
    for (int d = depths - 1; d >= 0; --d) {
        wgmma_k16(part, lo[d], at(d, false), d != depths - 1);
        wgmma_k16(part, hi[d], at(d, true), true);
    }
    UNROLL(depths)
    for (int d = 0; d < depths; ++d) {
        wgmma_k16(part, hi[d], at(d, false), true);
    }
    wgmma_commit();
}

/* sum += the product of a work's K chunks. A chunk of A is read from shared memory during the
 * previous chunk's products. `row` is the thread's first in the tile; `first` and `ahead` are the
 * stages of the K blocks multiplied and read next. Calls after_chunk(its end) after each one. The
 * shuffle lets the compiler keep the addresses for wgmma in uniform registers. */
template <class T, class Work, class AfterChunk>
KERNEL_BODY void multiply_work(const Work &work, typename T::Shared &shared, int row,
                               RingPosition<T::stages> &first, RingPosition<T::stages> &ahead,
                               RowOfA (&rows)[2], float (&sum)[1][T::Group::NI][4],
                               const AfterChunk &after_chunk)
{
    typedef typename T::Group Group;
    PairsOfA x;
    const auto read_next = [&] {
        UNROLL(2)
        for (int block = 0; block < 2; ++block) {
            mbarrier_wait(shared.full + ahead.index, ahead.parity);
            (T::mn_major ? read_pairs_mn_major : read_pairs)(shared.As[ahead.index], row, block, x);
            ahead.advance();
        }
    };
    read_next();
    UNROLL(1)
    for (int chunk = work.begin; chunk < work.end; ++chunk) {
        first.index = __shfl_sync(0xffffffff, first.index, 0);
        RingPosition<T::stages> second = first;
        second.advance();
        unsigned hi[depths][4], lo[depths][4];
        float inverse[2], part[Group::NI][4];
        split_pairs(x, rows, inverse, hi, lo);
        begin_products<T>(hi, lo, shared.Bs, first.index, second.index, part);
        if (chunk + 1 < work.end) {
            read_next();
        }
        wgmma_wait<0>();
        UNROLL(depths)
        for (int d = 0; d < depths; ++d) {
            wgmma_factor_read(hi[d]);
            wgmma_factor_read(lo[d]);
        }
        if (threadIdx.x % 32 == 0) { // this warp has read both stages
            mbarrier_arrive(shared.empty + first.index);
            mbarrier_arrive(shared.empty + second.index);
        }
        add_scaled(part, inverse, sum);
        after_chunk(chunk + 1);
        first = second;
        first.advance();
    }
}

} // namespace

#endif
