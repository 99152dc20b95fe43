// idea      tensor cores: each float32 as two halves, three products of halves for one of float32.
// block     128 x 128 results, 256 threads, warps of 64 x 32; tiles 128 x 64 and 64 x 128, in three
//           stages; a thread has 8 x 8 results, in sums of the tensor core's and in float32's.
// traffic   8 / 128 bytes of halves from the L2 cache per multiply-add, as float32 would take.
// bound by  tensor cores and shared memory alike: 13 loads of matrices, of 4 wavefronts each, for 48
//           products.
// next      wgmma: products that read their factors from shared memory by themselves.
#include "14_by_halves.h"

namespace {

template <int BM_, int BN_, int WM_ = 64> struct HalvesTiling {
    static constexpr int BM = BM_, BN = BN_, BK = stretch, stages = 3;
    static constexpr int WM = WM_, WN = 32, MI = WM / 16, NI = WN / 8; // of a warp, and in products
    static constexpr int warps_across = BN / WN, threads = BM / WM * warps_across * 32;
    static constexpr int depths = BK / 16;
    static_assert(group_lines % BM == 0 && group_lines % BN == 0, "a tile is part of one group");

    struct Shared {
        Chunk As[stages][BM * line_chunks];
        Chunk Bs[stages][BN * line_chunks];
        Pipeline<4> pipeline;
        uint64_t failing[threads / 8]; // a byte for each thread
    };

    static __device__ __forceinline__ void meet()
    {
        __syncthreads();
    }
};

/* sum += a stretch's product, the small parts first: what is cut off below a small sum is less. All
 * of shared memory is read for them; the high halves stay in registers for the last pass, in which
 * there is time for copies: before each depth of it `meanwhile` is called. */
template <class T, class Meanwhile>
__device__ __forceinline__ void
multiply_stretch(const Factors<T> &from, float (&sum)[T::MI][T::NI][4], const Meanwhile &meanwhile)
{
    float part[T::MI][T::NI][4] = {}; // the tensor core's own, for this stretch alone
    unsigned a_hi[T::depths][T::MI][4], b_hi[T::depths][T::NI][2];
    UNROLL(T::depths)
    for (int d = T::depths - 1; d >= 0; --d) {
        unsigned b_lo[T::NI][2];
        from.load_b(b_hi[d], d, false);
        from.load_b(b_lo, d, true);
        UNROLL(T::MI)
        for (int i = 0; i < T::MI; ++i) {
            unsigned a_lo[4];
            from.load_a(a_lo, i, d, true);
            from.load_a(a_hi[d][i], i, d, false);
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                multiply_halves(part[i][j], a_lo, b_hi[d][j]);
            }
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                multiply_halves(part[i][j], a_hi[d][i], b_lo[j]);
            }
        }
    }
    UNROLL(T::depths)
    for (int d = 0; d < T::depths; ++d) {
        meanwhile(d);
        UNROLL(T::MI)
        for (int i = 0; i < T::MI; ++i) {
            if (d == 1) { // for these there is no room
                from.load_a(a_hi[d][i], i, d, false);
            }
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                multiply_halves(part[i][j], a_hi[d][i], b_hi[d][j]);
            }
        }
    }
    UNROLL(T::MI)
    for (int i = 0; i < T::MI; ++i) {
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            UNROLL(4)
            for (int r = 0; r < 4; ++r) {
                sum[i][j][r] += part[i][j][r];
            }
        }
    }
}

template <class T> __global__ void __launch_bounds__(T::threads, 1) mma(const HalvesProduct q)
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    const int thread = threadIdx.x;
    TileOfResults<T> own(q, blockIdx.x, thread);
    wait_for_kernel_before();
    shared.pipeline.begin(thread, T::threads);
    FilledStretches<T> next(q, own.tile);
    int begun = 0; // stretches that are on their way, or done with
    const Chunk *const a = q.a.lines + own.tile.row * q.a.pitch();
    const Chunk *const b = q.b.lines + own.tile.col * q.b.pitch();
    const auto bring_half = [&](int stage, int half) {
        if (next.any()) {
            const int64_t at = static_cast<int64_t>(next.now) * line_chunks;
            bring<T, T::BM>(shared.As[stage], a + at, q.a.pitch(), thread, half);
            bring<T, T::BN>(shared.Bs[stage], b + at, q.b.pitch(), thread, half);
        }
    };
    const auto brought = [&](int number) {
        shared.pipeline.commit(number);
        begun += next.any();
        next.look_ahead();
    };
    for (int stage = 0; stage < T::stages - 1; ++stage) {
        bring_half(stage, 0);
        bring_half(stage, 1);
        brought(stage);
        next.go_on();
    }
    shared.pipeline.wait(0);

    float sum[T::MI][T::NI][4] = {};
    int done = 0;
    UNROLL(1)
    for (int stage = 0; done < begun; ++done) {
        const int free = stage == 0 ? T::stages - 1 : stage - 1; // once all threads are here
        const Factors<T> of_As_and_Bs(shared.As[stage], shared.Bs[stage], thread);
        const auto meanwhile = [&](int depth) {
            if (depth == T::depths - 3) {
                shared.pipeline.wait(done + 1);
                bring_half(free, 0);
            } else if (depth == T::depths - 2) {
                bring_half(free, 1);
                brought(done + 2);
            }
        };
        multiply_stretch<T>(of_As_and_Bs, sum, meanwhile);
        next.go_on();
        stage = stage + 1 == T::stages ? 0 : stage + 1;
        if (done + 1 == enough_to_tell && own.give_up(sum, shared.failing)) {
            end_group_of_copies(); // which alone can be waited for
            wait_for_copies<0>();
            return;
        }
    }
    let_next_kernel_begin();
    wait_for_copies<0>();
    static_assert(sizeof(Staging) * T::threads / 32 <= sizeof shared.As, "all are done with As");
    own.store_certain(sum, done > 0, shared.failing, reinterpret_cast<Staging *>(shared.As));
}

/* ------------------------------------------------------------------ the launch */

template <class T>
constexpr KernelSpec spec = {"mma",
                             {T::BM, T::BN, T::BK},
                             {T::WM / 8, T::WN / 4},
                             {T::threads, 1},
                             0,
                             sizeof(typename T::Shared),
                             1,
                             false,
                             ""};

template <class T> Status launch_tiling(const Sgemm *problem, const Launch *where)
{
    const auto multiply = [&](const HalvesProduct &q, int64_t tiles, bool overlaps) {
        return launch_blocks(mma<T>, overlapping(spec<T>, overlaps), tiles, q, where);
    };
    return launch_by_halves<T>(problem, where, multiply);
}

typedef HalvesTiling<128, 128> T;
typedef HalvesTiling<128, 64> Narrow;   // where a block has less than 193 KiB of shared memory,
typedef HalvesTiling<64, 64, 32> Small; // and less than 145

Status launch(const Sgemm *problem, const Launch *where)
{
    return has_shared_memory(where, spec<T>)        ? launch_tiling<T>(problem, where)
           : has_shared_memory(where, spec<Narrow>) ? launch_tiling<Narrow>(problem, where)
                                                    : launch_tiling<Small>(problem, where);
}

} // namespace

LAUNCHER(mma)
{
    return launch_long_sums(launch, problem, where);
}

VARIANT(mma, "each float32 as two halves, three products on tensor cores", "14_mma.cu", spec<T>,
        {8, 0});
