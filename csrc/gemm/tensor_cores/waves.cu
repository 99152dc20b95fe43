// idea      choose the tile size by C's shape. A wave is as many blocks as run at once; the last is
//           rarely full. Low tiles if there are fewer tiles than multiprocessors; wide tiles, which
//           read less shared memory per product, if their waves are as full as the others'.
// block     64 x 128, 128 x 128 or 128 x 192 results by one or two consumer warpgroups, and a
//           producer warpgroup; tiles 32 deep, in eight, six or five stages.
// traffic   6.7 / 128 bytes of fp16 from the L2 cache per multiply-add for 128 x 192.
// bound by  power from 2048 on: the clock drops before the tensor cores are fully used.
// next      fused: thin products spend most of their time on writing and reading A's fp16 pairs.
#include "../plan/waves_plan.h"
#include "error_check.h"
#include "split_fp16.h"

namespace {

/* Each of GROUPS consumer warpgroups computes 64 x BN_ results. */
template <int GROUPS, int BN_, int STAGES, bool SYMMETRIC> struct WgmmaTile {
    static constexpr bool symmetric = SYMMETRIC;
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
    const int row = static_cast<int>(q.product.a.first_row() + tile.row);
    const int col = static_cast<int>(q.product.b.first_row() + tile.col);
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

template <class T>
__global__ void __launch_bounds__(T::block_threads, 1) waves(const __grid_constant__ TmaProduct q)
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

template <class T> constexpr KernelSpec spec = spec_of_tile<T>("waves", T::block_threads);

template <class T> Status launch_tile(const Sgemm *problem, const Launch *where)
{
    const auto multiply = [&](const Fp16Product &product, int64_t tiles, bool overlaps) {
        TmaProduct q = {product, {}, {}};
        Status status = encode_tensor_map(&q.a, tiled_matrix(product.a, T::BM));
        if (status.code == STATUS_OK) {
            status = encode_tensor_map(&q.b, tiled_matrix(product.b, T::BN));
        }
        return status.code != STATUS_OK ? status
                                        : launch_blocks(waves<T>, overlapping(spec<T>, overlaps),
                                                        tiles, q, where, problem->count);
    };
    return launch_checked<T>(problem, where, multiply);
}

#define TILE(NAME, ROWS, COLS, STAGES, TIME)                                                       \
    template <bool SYMMETRIC> using NAME = WgmmaTile<ROWS / 64, COLS, STAGES, SYMMETRIC>;
WAVES_TILES(TILE)
#undef TILE

template <bool SYMMETRIC> Status launch_best_tile(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_of(where, &multiprocessors);
    if (status.code != STATUS_OK || multiprocessors == 0) {
        return status.code != STATUS_OK ? status : launch_tile<Square<SYMMETRIC>>(problem, where);
    }
#define TILE(NAME, ROWS, COLS, STAGES, TIME) launch_tile<NAME<SYMMETRIC>>,
    static constexpr Launcher *launchers[] = {WAVES_TILES(TILE)};
#undef TILE
    return launchers[plan_waves(problem, SYMMETRIC, multiprocessors).tile](problem, where);
}

Status launch(const Sgemm *problem, const Launch *where)
{
    return (where->symmetric ? launch_best_tile<true> : launch_best_tile<false>)(problem, where);
}

} // namespace

LAUNCHER(waves)
{
    return launch_unless_short(launch, problem, where, WGMMA_MIN_K);
}

ARCHITECTURE_SPECIFIC_VARIANT(waves,
                              "tiles of the size that leaves the fewest multiprocessors idle",
                              "waves.cu", spec<Square<false>>, {9, 0});
