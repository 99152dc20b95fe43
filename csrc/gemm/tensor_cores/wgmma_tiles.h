/* Tiles for `wgmma` and `waves`: a producer thread loads fp16 pairs by TMA, and each consumer
 * warpgroup multiplies 64 rows of a tile from shared memory. */
#ifndef SGEMM_KERNELS_WGMMA_TILES_H
#define SGEMM_KERNELS_WGMMA_TILES_H

#include "error_check.h"
#include "split_fp16.h"

namespace {

/* Each of GROUPS consumer warpgroups computes 64 x BN_ results. If not BATCHED, there is one
 * matrix, so its first row is 0. */
template <int GROUPS, int BN_, int STAGES, bool SYMMETRIC, bool BATCHED> struct WgmmaTile {
    static constexpr bool symmetric = SYMMETRIC, batched = BATCHED;
    static constexpr int stacked = 1;
    static constexpr int BM = 64 * GROUPS, BN = BN_, BK = k_block, stages = STAGES;
    static constexpr int WM = 16, WN = BN, MI = WM / 16, NI = WN / 8; // of a warp, and in products
    static constexpr int warps_across = 1, threads = BM / WM * 32;    // of the consumers
    static constexpr int block_threads = threads + 128;
    static_assert(group_rows % BM == 0, "a tile's rows are in one group");

    struct Shared {
        Fp16x8 As[stages][BM * block_vectors]; // (BM, 32): hi, lo
        Fp16x8 Bs[stages][BN * block_vectors]; // (BN, 32)
        Mbarrier full[stages], empty[stages];  // of a stage: loaded, read by all consumers
        uint64_t failing[threads / 8];         // a byte for each consumer
        Staging staging[threads / 32];         // for each consumer warp
        bool fell_back;                        // this tile of C, to fp32
    };

    static __device__ __forceinline__ void synchronize()
    {
        bar_sync<1>(threads); // the consumers alone
    }
};

struct TmaProduct {
    Fp16Product product;
    TensorMap a, b;
};

/* The producer thread. It stays until all of its loads have landed. */
template <class T> KERNEL_BODY void load_chunks(const TmaProduct &q, typename T::Shared &shared)
{
    // From this load on, waiting for an empty stage shows the consumers' early check.
    constexpr int checked = 2 * (early_check - 1) + T::stages;
    constexpr int k_step = swizzle_bytes / static_cast<int>(sizeof(uint16_t)); // of a K block
    const Origin tile = tile_computed<T>(q.product.p.C, blockIdx.x);
    const int row = static_cast<int>((T::batched ? q.product.a.first_row() : 0) + tile.row);
    const int col = static_cast<int>((T::batched ? q.product.b.first_row() : 0) + tile.col);
    RingPosition<T::stages> to;
    int begun = 0;
    bool fell_back = false;
    NonzeroChunks<T> next(q.product, tile);
    while (next.any() && !fell_back) {
        UNROLL(1)
        for (int half = 0; half < 2 && !fell_back; ++half) {
            mbarrier_wait(shared.empty + to.index, to.parity ^ 1);
            fell_back = begun >= checked && shared.fell_back;
            if (!fell_back) {
                Mbarrier *const full = shared.full + to.index;
                mbarrier_arrive_expect_tx(full, sizeof shared.As[0] + sizeof shared.Bs[0]);
                const int k = (next.now * 2 + half) * k_step;
                tma_load_2d(shared.As[to.index], q.a, k, row, full);
                tma_load_2d(shared.Bs[to.index], q.b, k, col, full);
                to.advance();
                ++begun;
            }
        }
        next.look_ahead();
        next.advance();
    }
    for (int i = 0; i < T::stages; ++i) { // filled last in this cycle or in the previous one
        mbarrier_wait(shared.full + i, i < to.index ? to.parity : to.parity ^ 1);
    }
}

/* part = the product of a K chunk, whose two K blocks are in two stages. The small products come
 * first, as in mma. */
template <class T>
__device__ __forceinline__ void multiply_chunk(const decltype(T::Shared::As) &As,
                                               const decltype(T::Shared::Bs) &Bs, int first,
                                               int second, float (&part)[T::NI][4])
{
    constexpr int depths = k_chunk / 16; // products along K
    const int rows = threadIdx.x / 128 * 64 * block_vectors;
    const WgmmaFactor a[] = {WgmmaFactor(As[first] + rows), WgmmaFactor(As[second] + rows)};
    const WgmmaFactor b[] = {WgmmaFactor(Bs[first]), WgmmaFactor(Bs[second])};
    const auto at = [](const WgmmaFactor(&blocks)[2], int depth, bool low) {
        const int vectors = depth % 2 * 2 + low * lo_offset;
        return blocks[depth / 2].from_byte(vectors * static_cast<int>(sizeof(Fp16x8)));
    };
    wgmma_fence();
    UNROLL(depths)
    for (int d = depths - 1; d >= 0; --d) {
        wgmma_k16(part, at(a, d, true), at(b, d, false), d != depths - 1);
        wgmma_k16(part, at(a, d, false), at(b, d, true), true);
    }
    UNROLL(depths)
    for (int d = 0; d < depths; ++d) {
        wgmma_k16(part, at(a, d, false), at(b, d, false), true);
    }
    wgmma_commit();
    wgmma_wait<0>();
    UNROLL(T::NI)
    for (int j = 0; j < T::NI; ++j) {
        wgmma_accumulators_ready(part[j]);
    }
}

/* The consumer threads. */
template <class T> KERNEL_BODY void multiply_chunks(const TmaProduct &q, typename T::Shared &shared)
{
    CheckedTile<T> own(q.product, blockIdx.x, threadIdx.x);
    float sum[1][T::NI][4] = {};
    int done = 0;
    RingPosition<T::stages> first;
    NonzeroChunks<T> next(q.product, own.tile);
    UNROLL(1)
    while (next.any()) {
        next.look_ahead();
        RingPosition<T::stages> second = first;
        second.advance();
        mbarrier_wait(shared.full + first.index, first.parity);
        mbarrier_wait(shared.full + second.index, second.parity);
        float part[T::NI][4];
        multiply_chunk<T>(shared.As, shared.Bs, first.index, second.index, part);
        const auto release = [&] { // this warp has read both stages
            if (threadIdx.x % 32 == 0) {
                mbarrier_arrive(shared.empty + first.index);
                mbarrier_arrive(shared.empty + second.index);
            }
        };
        const bool checks = ++done == early_check;
        if (!checks) {
            release();
        }
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            UNROLL(4)
            for (int r = 0; r < 4; ++r) {
                sum[0][j][r] += part[j][r];
            }
        }
        if (checks) {
            const bool fails = own.fails_early(sum, shared.failing);
            if (fails && threadIdx.x == 0) {
                shared.fell_back = true; // the release makes it visible to the producer
            }
            release();
            if (fails) {
                return;
            }
        }
        first = second;
        first.advance();
        next.advance();
    }
    griddep_launch_dependents();
    own.store_passing(sum, done > 0, shared.failing, shared.staging);
}

/* The whole kernel. */
template <class T> KERNEL_BODY void multiply_tile(const TmaProduct &q)
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::stages; ++i) {
            mbarrier_init(shared.full + i, 1);
            mbarrier_init(shared.empty + i, T::threads / 32);
        }
        shared.fell_back = false;
        fence_proxy_async();
    }
    griddep_wait();
    __syncthreads();
    if (threadIdx.x < T::threads) {
        setmaxnreg_inc<240>();
        multiply_chunks<T>(q, shared);
    } else {
        setmaxnreg_dec<24>();
        if (threadIdx.x == T::threads) {
            load_chunks<T>(q, shared);
        }
    }
}

/* ------------------------------------------------------------------ the launch */

/* Multiplies by `kernel`, one of its blocks for each tile T, and recomputes what fails. */
template <class T>
Status launch_wgmma_tiles(void (*kernel)(TmaProduct), const KernelSpec &spec, const Sgemm *problem,
                          const Launch *where)
{
    const auto multiply = [&](const Fp16Product &product, int64_t tiles, bool overlaps) {
        TmaProduct q = {product, {}, {}};
        Status status = encode_tensor_map(&q.a, tiled_matrix(product.a, T::BM));
        if (status.code == STATUS_OK) {
            status = encode_tensor_map(&q.b, tiled_matrix(product.b, T::BN));
        }
        return status.code != STATUS_OK ? status
                                        : launch_blocks(kernel, overlapping(spec, overlaps), tiles,
                                                        q, where, problem->count);
    };
    return launch_checked<T>(problem, where, multiply);
}

} // namespace

#endif
