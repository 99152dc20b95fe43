// idea      divide all steps of K of all tiles into equal shares, wherever tiles begin and end (stream-K,
//           D. Merrill, D. Garland et al., 2023). Tiles come in waves of as many as there are
//           multiprocessors, and the last wave is seldom full. So that wave, and the one before it if
//           there is one, are laid end to end, and each multiprocessor takes an equal share of their
//           steps. Who has a part of a tile leaves it in memory, and the last of the tile's blocks to
//           arrive adds all parts, in the order of k: the same bits each time, whoever that is. No
//           block waits for another.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a pipeline of four stages.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, 6 / 8 from shared memory, and 8 for
//           each result of a part.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds; the parts' traffic where
//           there are few tiles.
// next      tma: nobody works out addresses of tiles any more.
#include "11_splitk.cu"
#include "12_parts.h"

namespace {

/* A product some of whose tiles are divided among blocks. */
struct StreamProduct {
    Sgemm p;
    int64_t whole; // tiles with a block each, the first ones
    Parts shares;  // of the steps of the others, numbered through: a block has one
    float4 *parts; // two for each share, see part_of, of crossed quads
    unsigned
        *arrived; // of each streamed tile: how many of its blocks, less one, and 0 after the last
};

/* A block's shared memory: that of the product, which is the first, and what last_to_arrive says. */
template <class G> struct Shared : G::Shared {
    bool is_last;
};

/* Counts an arrival, and tells how many came before; after the last of them, `others`, it is 0 again. What this thread
 * knows to be stored is so before; and what others did before they arrived is seen by what this one reads after. */
static __device__ __forceinline__ unsigned arrive(unsigned *arrived, unsigned others)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    // Both fences in one: as strong as is needed, where __threadfence is stronger, and takes longer.
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(arrived)), "r"(others)
                 : "memory");
    return before;
#else
    __threadfence(); // what the block has stored, before it arrives
    const unsigned before = atomicInc(arrived, others);
    __threadfence(); // and before what the block reads, that the others have arrived
    return before;
#endif
}

/* Whether this block is the last of `count` to come here, for each time that so many do. It then sees
 * what all threads of the others stored before. `arrived` is 0 again. */
static __device__ __forceinline__ bool last_to_arrive(unsigned *arrived, int64_t count,
                                                      bool &is_last)
{
    const unsigned others = static_cast<unsigned>(count - 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = arrive(arrived, others) == others;
    }
    __syncthreads();
    return is_last;
}

/* This thread's results of a part, quad by quad, each beside its neighbours' in the block. A share has
 * a part of a tile that begins in it, and one of a tile that began before. */
template <class G>
static __device__ __forceinline__ float4 *part_of(const StreamProduct &s, int64_t share,
                                                  bool begins)
{
    return s.parts + (2 * share + begins) * (G::BM * G::BN / 4) + threadIdx.x;
}

template <class G>
static __device__ __forceinline__ void store_part(float4 *part, const float (&sum)[G::TM][G::TN])
{
    UNROLL(G::TM)
    for (int i = 0; i < G::TM; ++i) {
        UNROLL(G::TN / 4)
        for (int j = 0; j < G::TN; j += 4) {
            store_crossed(reinterpret_cast<float *>(part), sum[i] + j);
            part += G::threads;
        }
    }
}

template <class G>
static __device__ __forceinline__ void add_part(const float4 *part, float (&sum)[G::TM][G::TN])
{
    UNROLL(G::TM)
    for (int i = 0; i < G::TM; ++i) {
        UNROLL(G::TN / 4)
        for (int j = 0; j < G::TN; j += 4) {
            const float4 more = *part;
            sum[i][j] += more.y;
            sum[i][j + 1] += more.x;
            sum[i][j + 2] += more.w;
            sum[i][j + 3] += more.z;
            part += G::threads;
        }
    }
}

/* All threads are done with the pipeline's barriers, which may then begin anew. */
template <int STAGES>
static __device__ __forceinline__ void end_pipeline(Pipeline<STAGES> &pipeline)
{
    __syncthreads();
    if (threadIdx.x < STAGES) {
        barrier_end(pipeline.full + threadIdx.x);
    }
}

template <class G>
static __device__ __forceinline__ Origin origin_of(const StreamProduct &s, unsigned tile)
{
    return raster_origin(s.p.C, G::BM, G::BN, tile);
}

/* What a block does. multiply(tile, first, here, sum) adds to `sum` the products of `here` steps of a tile, from
 * step `first` on; `tile` is its corner. */
template <class G, class Multiply>
KERNEL_BODY void compute_share(const StreamProduct &s, const Multiply &multiply)
{
    const int steps = static_cast<int>((s.p.A.cols + G::BK - 1) / G::BK);
    const int share = static_cast<int>(blockIdx.x - s.whole);
    unsigned number = blockIdx.x; // of the tile
    int first = 0, left = steps;
    if (share >= 0) {
        const int64_t begin = s.shares.first(share);
        const auto [streamed, behind] = divided<int64_t>(begin, steps);
        number = static_cast<unsigned>(s.whole + streamed);
        first = static_cast<int>(behind);
        left = static_cast<int>(s.shares.first(share + 1) - begin);
    }
    Shared<G> &shared = dynamic_shared<Shared<G>>();
    UNROLL(1)
    for (;;) {
        const Origin tile = origin_of<G>(s, number);
        const int here = left < steps - first ? left : steps - first;
        // What is left then, and whether this is a whole tile: both in one register, since no second is
        // left while the block multiplies.
        int then = 2 * (left - here) + (here == steps);
        float sum[G::TM][G::TN] = {};
        multiply(tile, first, here, sum);

        not_known_before(then);
        left = then / 2;
        bool complete = then % 2 == 1;
        if (!complete) {
            const int64_t streamed = number - s.whole;
            const int64_t from = s.shares.of(streamed * steps);
            const int64_t to = s.shares.of(streamed * steps + steps - 1);
            store_part<G>(part_of<G>(s, share, share == from), sum);
            complete = last_to_arrive(s.arrived + streamed, to - from + 1, shared.is_last);
            if (complete) {
                UNROLL(G::TM)
                for (int i = 0; i < G::TM; ++i) {
                    UNROLL(G::TN)
                    for (int j = 0; j < G::TN; ++j) {
                        sum[i][j] = 0.0f;
                    }
                }
                UNROLL(1)
                for (int64_t of = from; of <= to; ++of) {
                    add_part<G>(part_of<G>(s, of, of == from), sum);
                }
            }
        }
        if (complete) {
            // Worked out anew: no registers are left to keep it while the block multiplies.
            unsigned to = number, by = threadIdx.x;
            not_known_before(to);
            not_known_before(by);
            store_thread_tile<G>(s.p, origin_of<G>(s, to), ThreadTile<G>(by), sum);
        }
        if (left == 0) {
            break;
        }
        first = 0;
        ++number;
        end_pipeline(shared.pipeline);
    }
}

template <class G, int MIN_BLOCKS = 1>
__global__ void __launch_bounds__(G::threads, MIN_BLOCKS) streamk(const StreamProduct s)
{
    if constexpr (has_code<G>) {
        compute_share<G>(s, [&](const Origin &tile, int first, int here,
                                float(&sum)[G::TM][G::TN]) {
            // Steps are whole tiles deep, but for the first of a tile, which takes what K leaves over.
            const int64_t K = s.p.A.cols;
            const int steps = static_cast<int>((K + G::BK - 1) / G::BK);
            const int64_t begin = first == 0 ? 0 : K - static_cast<int64_t>(steps - first) * G::BK;
            const int64_t end = K - static_cast<int64_t>(steps - first - here) * G::BK;
            Matrix A = s.p.A, B = s.p.B;
            A.data = address(A, 0, begin);
            B.data = address(B, begin, 0);
            A.cols = B.rows = end - begin;
            block_product<G>(A, B, tile, ThreadTile<G>(threadIdx.x), sum);
        });
    }
}

/* ------------------------------------------------------------------ on the host */

/* What blocks leave for the last of them to arrive, and its counters, for one launch. */
template <class Left> struct Handover {
    Left *left = nullptr;
    unsigned *arrived = nullptr;
    bool taken = false; // or there is no memory, or nothing is `needed`
    const Launch *const where;

    Handover(bool needed, size_t bytes, int64_t counters, const Launch *on) : where(on)
    {
        void *memory;
        if (!needed || scratch_take(bytes, where, &memory).code != STATUS_OK) {
            return;
        }
        taken = counters_take(static_cast<size_t>(counters), where, &arrived).code == STATUS_OK;
        if (!taken) {
            scratch_give(memory, where);
            return;
        }
        left = static_cast<Left *>(memory);
    }
    Handover(const Handover &) = delete;
    Handover &operator=(const Handover &) = delete;
    ~Handover()
    {
        if (taken) {
            scratch_give(arrived, where);
            scratch_give(left, where);
        }
    }
};

template <class G> constexpr KernelSpec spec_of_shares()
{
    KernelSpec spec = spec_of<G>("streamk");
    spec.dynamic_bytes = sizeof(Shared<G>);
    return spec;
}

/* How many multiprocessors a product is divided among. */
inline Status multiprocessors_that_share(const Launch *where, int *multiprocessors)
{
    *multiprocessors = 1; // where accesses are counted: one tile stands for as many as there are
#if !defined(SGEMM_COUNTED) || defined(SGEMM_WATCHED)
    const Status status = multiprocessors_of(where, multiprocessors);
    *multiprocessors = *multiprocessors ? *multiprocessors : 8;
    return status;
#else
    (void)where;
    return status_ok();
#endif
}

/* Divides a product among `resident` blocks of each multiprocessor, and has `launch` launch it, by so many blocks. */
template <class G, class LaunchBlocks>
Status launch_shares(const Sgemm *problem, const Launch *where, int resident,
                     const LaunchBlocks &launch)
{
    int multiprocessors;
    const Status status = multiprocessors_that_share(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const int64_t tiles = tiles_of(problem->C, G::BM, G::BN);
    const int64_t steps = (problem->A.cols + G::BK - 1) / G::BK;
    const StreamPlan by = plan_stream(tiles, steps, resident * multiprocessors, G::BK);
    const int64_t streamed = tiles - by.whole;
    const size_t bytes = static_cast<size_t>(2 * by.shares * G::BM * G::BN) * sizeof(float);
    Handover<float4> memory(by.shares > 0, bytes, streamed, where);
    if (!memory.taken) {
        // Nothing is divided, also where there is no memory for parts.
        return launch({*problem, tiles, {0, 1}, nullptr, nullptr}, tiles);
    }
    const Parts shares(streamed * steps, static_cast<int>(by.shares));
    return launch({*problem, by.whole, shares, memory.left, memory.arrived}, by.whole + by.shares);
}

template <class G, int MIN_BLOCKS = 1>
Status launch_streamk(const Sgemm *problem, const Launch *where)
{
    return launch_shares<G>(
        problem, where, MIN_BLOCKS, [&](const StreamProduct &s, int64_t blocks) {
            return launch_blocks(streamk<G, MIN_BLOCKS>, spec_of_shares<G>(), blocks, s, where);
        });
}

template <int DEPTH> using Streamed = Geometry<128, 256, DEPTH, 64, 64, 8, 16>;

template <Neighbours A = EITHER_WAY, Neighbours B = EITHER_WAY>
Status launch_in_shares(const Sgemm *problem, const Launch *where)
{
    return has_shared_memory(where, spec_of_shares<Streamed<32>>())
               ? launch_streamk<Known<Streamed<32>, A, B>>(problem, where)
               : launch_streamk<Streamed<16>>(problem, where);
}

} // namespace

#if THIS_RUNG
LAUNCHER(streamk)
{
    return launch_in_shares(problem, where);
}

VARIANT(streamk, "equal shares of all steps of K, wherever tiles begin and end", "12_streamk.cu",
        spec_of_shares<Streamed<32>>(), {8, 0});
#endif
