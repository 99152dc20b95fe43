// idea      products of a warpgroup (128 threads), which read both factors from shared memory by
//           themselves; TMA brings the tiles, swizzled; one thread asks for them, and does nothing
//           else.
// block     128 x 128 results, two warpgroups that multiply, of 64 x 128 each, and one that copies;
//           tiles 128 x 32 and 32 x 128, in six stages; a thread has 2 x 32 results.
// traffic   8 / 128 bytes of halves from the L2 cache per multiply-add, as in mma, and from shared
//           memory 3 / 64 + 3 / 128 times 2 bytes.
// bound by  power: the clock goes down before the tensor cores run dry.
// next      waves: tiles of other sizes, where these leave multiprocessors idle or cost more power.
#include "14_by_halves.h"
#include "15_hopper.h"

namespace {

/* `GROUPS` warpgroups multiply, of 64 x BN_ results each. */
template <int GROUPS, int BN_, int STAGES> struct WgmmaTiling {
    static constexpr int BM = 64 * GROUPS, BN = BN_, BK = block_depth, stages = STAGES;
    static constexpr int WM = 16, WN = BN, MI = WM / 16, NI = WN / 8; // of a warp, and in products
    static constexpr int warps_across = 1, threads = BM / WM * 32;    // that multiply
    static constexpr int block_threads = threads + 128;
    static_assert(group_lines % BM == 0, "a tile's rows are of one group");

    struct Shared {
        Chunk As[stages][BM * block_chunks]; // (BM, 32): hi, lo
        Chunk Bs[stages][BN * block_chunks]; // (BN, 32)
        Barrier full[stages], empty[stages]; // of a stage: its tiles are there; nobody needs them
        uint64_t failing[threads / 8];       // a byte for each thread
        Staging staging[threads / 32];       // of the warps that multiply
        bool given_up;                       // the tile of C
    };

    static __device__ __forceinline__ void meet()
    {
        meet_first(threads);
    }
};

/* A product by halves, whose lines TMA knows. */
struct BoxedProduct {
    HalvesProduct halves;
    TensorMap a, b;
};

/* Who fills the stages and who empties them go through them in the same order. */
template <int STAGES> struct Stage {
    int index = 0, parity = 0; // of the barriers' phase

    __device__ __forceinline__ void go_on()
    {
        if (++index == STAGES) {
            index = 0;
            parity ^= 1;
        }
    }
};

/* What the thread that copies does. It stays until all is there that it asked for. */
template <class T>
KERNEL_BODY void bring_stretches(const BoxedProduct &q, typename T::Shared &shared)
{
    // The first stage that is filled again after those who multiply may have given the tile up.
    constexpr int told = 2 * (enough_to_tell - 1) + T::stages;
    const Origin tile = raster_origin(q.halves.p.C, T::BM, T::BN, blockIdx.x);
    Stage<T::stages> to;
    int begun = 0;
    bool given_up = false;
    FilledStretches<T> next(q.halves, tile);
    while (next.any() && !given_up) {
        UNROLL(1)
        for (int half = 0; half < 2 && !given_up; ++half) {
            barrier_wait(shared.empty + to.index, to.parity ^ 1);
            given_up = begun >= told && shared.given_up;
            if (!given_up) {
                Barrier *const full = shared.full + to.index;
                barrier_arrive_expecting(full, sizeof shared.As[0] + sizeof shared.Bs[0]);
                const int block = next.now * 2 + half;
                bring_halves(shared.As[to.index], q.a, static_cast<int>(tile.row), block, full);
                bring_halves(shared.Bs[to.index], q.b, static_cast<int>(tile.col), block, full);
                to.go_on();
                ++begun;
            }
        }
        next.look_ahead();
        next.go_on();
    }
    for (int i = 0; i < T::stages; ++i) { // each was filled last in this round, or in that before
        barrier_wait(shared.full + i, i < to.index ? to.parity : to.parity ^ 1);
    }
}

/* A stretch's tiles, in two stages: from where on a warpgroup takes its products of 16 of the depth. */
template <class T> struct StretchTiles {
    SharedLines a[2], b[2];

    __device__ __forceinline__ StretchTiles(const typename T::Shared &shared, int first, int second)
        : a{SharedLines(shared.As[first] + rows()), SharedLines(shared.As[second] + rows())},
          b{SharedLines(shared.Bs[first]), SharedLines(shared.Bs[second])}
    {}
    static __device__ __forceinline__ int rows()
    {
        return threadIdx.x / 128 * 64 * block_chunks;
    }
    static __device__ __forceinline__ SharedLines at(const SharedLines (&tiles)[2], int depth,
                                                     bool low)
    {
        return tiles[depth / 2].from_chunk(depth % 2 * 2 + low * low_chunks);
    }
};

/* part = a stretch's product, in the order of mma: the small parts first. */
template <class T>
__device__ __forceinline__ void multiply_stretch(const StretchTiles<T> &tiles,
                                                 float (&part)[T::NI][4])
{
    typedef StretchTiles<T> Tiles;
    constexpr int depths = stretch / 16;
    begin_products();
    UNROLL(depths)
    for (int d = depths - 1; d >= 0; --d) {
        multiply_lines(part, Tiles::at(tiles.a, d, true), Tiles::at(tiles.b, d, false),
                       d == depths - 1);
        multiply_lines(part, Tiles::at(tiles.a, d, false), Tiles::at(tiles.b, d, true), false);
    }
    UNROLL(depths)
    for (int d = 0; d < depths; ++d) {
        multiply_lines(part, Tiles::at(tiles.a, d, false), Tiles::at(tiles.b, d, false), false);
    }
    end_group_of_products();
    wait_for_products();
    UNROLL(T::NI)
    for (int j = 0; j < T::NI; ++j) {
        known_from_here(part[j]);
    }
}

/* What the threads that multiply do. */
template <class T>
KERNEL_BODY void multiply_stretches(const BoxedProduct &q, typename T::Shared &shared)
{
    TileOfResults<T> own(q.halves, blockIdx.x, threadIdx.x);
    float sum[1][T::NI][4] = {};
    int done = 0;
    Stage<T::stages> from;
    FilledStretches<T> next(q.halves, own.tile);
    UNROLL(1)
    while (next.any()) {
        next.look_ahead();
        Stage<T::stages> second = from;
        second.go_on();
        barrier_wait(shared.full + from.index, from.parity);
        barrier_wait(shared.full + second.index, second.parity);
        const StretchTiles<T> of_As_and_Bs(shared, from.index, second.index);
        float part[T::NI][4];
        multiply_stretch<T>(of_As_and_Bs, part);
        // As far as this warp is concerned, the stages may be filled again.
        const auto release = [&] {
            if (threadIdx.x % 32 == 0) {
                barrier_arrive(shared.empty + from.index);
                barrier_arrive(shared.empty + second.index);
            }
        };
        const bool tells = ++done == enough_to_tell;
        if (!tells) {
            release();
        }
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            UNROLL(4)
            for (int r = 0; r < 4; ++r) {
                sum[0][j][r] += part[j][r];
            }
        }
        if (tells) {
            const bool gives_up = own.give_up(sum, shared.failing);
            if (gives_up && threadIdx.x == 0) {
                shared.given_up = true; // before the release, which shows it
            }
            release();
            if (gives_up) {
                return;
            }
        }
        from = second;
        from.go_on();
        next.go_on();
    }
    let_next_kernel_begin();
    own.store_certain(sum, done > 0, shared.failing, shared.staging);
}

template <class T>
__global__ void __launch_bounds__(T::block_threads, 1) wgmma(const __grid_constant__ BoxedProduct q)
{
    constexpr int registers_to_copy = 24, registers_to_multiply = 240;
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::stages; ++i) {
            barrier_begin(shared.full + i, 1);
            barrier_begin(shared.empty + i, T::threads / 32);
        }
        shared.given_up = false;
        show_to_tma();
    }
    wait_for_kernel_before();
    __syncthreads();
    if (threadIdx.x < T::threads) {
        take_registers<registers_to_multiply>();
        multiply_stretches<T>(q, shared);
    } else {
        keep_registers<registers_to_copy>();
        if (threadIdx.x == T::threads) {
            bring_stretches<T>(q, shared);
        }
    }
}

/* ------------------------------------------------------------------ the launch */

template <class T> constexpr KernelSpec wgmma_spec(const char *symbol)
{
    return {symbol,
            {T::BM, T::BN, T::BK},
            {T::WM / 8, T::WN / 4},
            {T::block_threads, 1},
            0,
            sizeof(typename T::Shared),
            1,
            false,
            ""};
}

template <class T> Status launch_wgmma(const Sgemm *problem, const Launch *where)
{
    const auto multiply = [&](const HalvesProduct &halves, int64_t tiles, bool overlaps) {
        BoxedProduct q = {halves, {}, {}};
        Status status = describe_halves(&q.a, halves.a, T::BM);
        if (status.code == STATUS_OK) {
            status = describe_halves(&q.b, halves.b, T::BN);
        }
        const KernelSpec spec = overlapping(wgmma_spec<T>("wgmma"), overlaps);
        return status.code != STATUS_OK ? status : launch_blocks(wgmma<T>, spec, tiles, q, where);
    };
    return launch_by_halves<T>(problem, where, multiply);
}

typedef WgmmaTiling<2, 128, 6> Square;

} // namespace

#if THIS_RUNG
LAUNCHER(wgmma)
{
    return launch_long_sums(launch_wgmma<Square>, problem, where);
}

ARCHITECTURE_SPECIFIC_VARIANT(wgmma,
                              "tiles brought by TMA, multiplied from shared memory by warpgroups",
                              "15_wgmma.cu", wgmma_spec<Square>("wgmma"), {9, 0});
#endif
