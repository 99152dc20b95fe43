// idea      tensor cores: each float32 as two halves, three products of halves for one of float32.
// block     128 x 128 results, 256 threads, warps of 64 x 32; tiles 128 x 64 and 64 x 128, in three
//           stages; a thread has 8 x 8 results, in sums of the tensor core's and in float32's.
// traffic   8 / 128 bytes of halves from the L2 cache per multiply-add, as float32 would take.
// bound by  tensor cores and shared memory alike: 13 loads of matrices, of 4 wavefronts each, for 48
//           products.
// next      nothing yet: there are instructions that read their factors from shared memory.
#include "12_certify.h"
#include "12_recompute.h"

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
        from.load_b(b_hi[d], d, 0);
        from.load_b(b_lo, d, 8);
        UNROLL(T::MI)
        for (int i = 0; i < T::MI; ++i) {
            unsigned a_lo[4];
            from.load_a(a_lo, i, d, 8);
            from.load_a(a_hi[d][i], i, d, 0);
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
                from.load_a(a_hi[d][i], i, d, 0);
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
    const Origin tile = raster_origin(q.p.C, T::BM, T::BN, blockIdx.x);
    shared.pipeline.begin(thread, T::threads);
    FilledStretches next(q, tile);
    int begun = 0; // stretches that are on their way, or done with
    const auto bring_half = [&](int stage, int half) {
        if (next.any()) {
            const Chunk *const a = next.of_a(T::BM == group_lines ? 0 : tile.row);
            const Chunk *const b = next.of_b(T::BN == group_lines ? 0 : tile.col);
            bring<T, T::BM>(shared.As[stage], a, thread, half);
            bring<T, T::BN>(shared.Bs[stage], b, thread, half);
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

    const TileOfResults<T> own(q, tile, thread);
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
    own.store_certain(sum, done > 0, shared.failing);
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

template <class T, class Float32Tiling>
Status launch_halves(const Sgemm *problem, const Launch *where)
{
    if (!countable(problem->A) || !countable(transposed(problem->B))) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for more than 70 TB of halves");
    }
    HalvesProduct q = {};
    SplittingBoth both = {};
    const int64_t tiles = tiles_of(problem->C, T::BM, T::BN);
    Parts parts = {nullptr, 0};
    for (int pass = 0; pass < 2; ++pass) { // how many bytes, then where
        both.a = plan_splitting(problem->A, &parts);
        both.b = plan_splitting(transposed(problem->B), &parts);
        q = {*problem, both.a.to, both.b.to, parts.take<int>(tiles),
             parts.take<uint16_t>(tiles * slots)};
        if (pass == 0) {
            void *memory;
            const Status status = scratch_take(parts.bytes, where, &memory);
            if (status.code != STATUS_OK) {
                return status;
            }
            parts = {static_cast<char *>(memory), 0};
        }
    }
    Status status = launch_splitting(both, where);
    if (status.code == STATUS_OK) {
        status = launch_blocks(mma<T>, spec<T>, tiles, q, where);
    }
    if (status.code == STATUS_OK) {
        status = launch_blocks(fill_slots<T>, spec_of_threads("fill_slots", dot_threads), tiles, q,
                               where);
    }
    if (status.code == STATUS_OK) {
        status = launch_blocks(fill_tiles<T, Float32Tiling>, spec_of<Float32Tiling>("fill_tiles"),
                               tiles, q, where);
    }
    scratch_give(parts.memory, where);
    return status;
}

typedef HalvesTiling<128, 128> T;
typedef HalvesTiling<128, 64> Narrow;   // where a block has less than 193 KiB of shared memory,
typedef HalvesTiling<64, 64, 32> Small; // and less than 145

Status launch(const Sgemm *problem, const Launch *where)
{
    return has_shared_memory(where, spec<T>)
               ? launch_halves<T, Geometry<128, 128, 16, 64, 64, 8, 16>>(problem, where)
           : has_shared_memory(where, spec<Narrow>)
               ? launch_halves<Narrow, Geometry<128, 64, 16, 64, 32, 8, 8>>(problem, where)
               : launch_halves<Small, Geometry<64, 64, 16, 64, 64, 8, 16>>(problem, where);
}

} // namespace

#if defined(__CUDACC__)
extern "C" Launcher launch_splitk_cuda;
#elif !defined(SGEMM_COUNTED)
extern "C" const Variant variant_splitk;
#endif

/* Short sums are computed in float32: the proof of the bound needs some length. */
LAUNCHER(mma)
{
#ifdef __CUDACC__
    Launcher *const shorter = launch_splitk_cuda;
#elif defined(SGEMM_COUNTED)
    Launcher *const shorter = launch; // the one tile that is counted stands for long sums
#else
    Launcher *const shorter = variant_splitk.launch[DEVICE_CPU];
#endif
    return (problem->A.cols < shortest ? shorter : launch)(problem, where);
}

VARIANT(mma, "each float32 as two halves, three products on tensor cores", "12_mma.cu", spec<T>,
        {8, 0});
