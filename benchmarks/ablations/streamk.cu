// Stream-K (D. Merrill, D. Garland et al., 2023): blocks take equal shares of all the work, wherever
// tiles begin and end. sgemm_kernels.kernel("streamk.cu") loads it; with defines={"DIVIDE_K": 1} it
// divides K as the rung splitk does, without a second kernel that adds.
//
// idea      a tile takes as many steps of BK as K has, and tiles come in waves of as many as there are
//           multiprocessors; the last wave is seldom full. So that wave, and one before it if there
//           is one, are laid end to end, and their steps are divided into equal shares, one for each
//           multiprocessor. Waves before those are tiles as ever. Who has a part of a tile leaves it
//           in memory, and the last of the tile's blocks to arrive adds all parts, in the order of k:
//           the same bits each time, whoever that is. No block waits for another.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a pipeline of four stages: the main loop is that of async, raster and splitk.
// traffic   as raster's, and 8 bytes for each result of a part, which is written by one block and read by
//           another.
// gain      1536 x 2048 x 4096 is 96 tiles of 128 steps. On 132 multiprocessors they take 128 steps,
//           of which 96 * 128 / 132 = 93.1 would be enough: 0.73 of the full rate. By shares it is 94
//           steps, and 2 more for the parts, if each takes half a step to write or to add: 0.97.
//           4096 x 4096 x 4096 is 512 tiles, 3.88 waves: 0.97 by tiles. By shares it is 264 tiles in
//           two waves, 256 steps, then 248 * 128 / 132 = 240.5, so 241, and 1.5 for the parts: 0.996.
#include "../core/plan.h"
#include "10_raster.cu"

namespace {

constexpr bool divides_K = TUNABLE(DIVIDE_K, 0);

/* A product some of whose tiles are divided among blocks. */
struct StreamProduct {
    Sgemm p;
    int64_t whole;    // tiles with a block each, the first ones
    int64_t streamed; // the others, whose steps are numbered through
    int64_t shares;   // blocks that divide those
    float4 *parts;    // two for each share, see part_of
    unsigned
        *arrived; // of each streamed tile: how many of its blocks, less one, and 0 after the last
};

/* Which of the streamed tiles' steps a share has: from first(share) to first(share + 1). */
struct Shares {
    int64_t steps, count;

    __device__ __forceinline__ int64_t first(int64_t share) const
    {
        return steps * share / count;
    }
    /* Whose a step is: the last share that does not begin behind it. */
    __device__ __forceinline__ int64_t of(int64_t step) const
    {
        return ((step + 1) * count - 1) / steps;
    }
};

/* A block's shared memory: that of the product, which is the first, and what last_to_arrive says. */
template <class G> struct Shared : G::Shared {
    bool is_last;
};

/* Whether this block is the last of `count` to come here, for each time that so many do. It then sees
 * what all threads of the others stored before. `arrived` is 0 again. */
static __device__ __forceinline__ bool last_to_arrive(unsigned *arrived, int64_t count,
                                                      bool &is_last)
{
    const unsigned others = static_cast<unsigned>(count - 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); // what the block has stored, before it arrives
        is_last = atomicInc(arrived, others) == others;
        __threadfence(); // and before what the block reads, that the others have arrived
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
            *part = make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
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
            sum[i][j] += more.x;
            sum[i][j + 1] += more.y;
            sum[i][j + 2] += more.z;
            sum[i][j + 3] += more.w;
            part += G::threads;
        }
    }
}

/* All threads are done with the pipeline's barriers, which may then begin anew. */
template <int STAGES>
static __device__ __forceinline__ void end_pipeline(Pipeline<STAGES> &pipeline)
{
    __syncthreads();
#ifdef SGEMM_ASYNC
    if (threadIdx.x < STAGES) {
        asm volatile(
            "mbarrier.inval.shared.b64 [%0];" ::"r"(shared_address(pipeline.full + threadIdx.x))
            : "memory");
    }
#else
    (void)pipeline;
#endif
}

/* Before each launch, since nobody knows what the memory held. It overlaps the product, which needs it
 * when a first block arrives. */
constexpr int clearing_threads = 256;

__global__ void __launch_bounds__(clearing_threads) clear(const StreamProduct s)
{
    let_next_kernel_begin();
    for (int64_t tile = threadIdx.x; tile < s.streamed; tile += clearing_threads) {
        s.arrived[tile] = 0;
    }
}

template <class G> __global__ void __launch_bounds__(G::threads) streamk(const StreamProduct s)
{
    // Steps are whole tiles deep, but for the first of a tile, which takes what K leaves over.
    const int64_t K = s.p.A.cols, steps = (K + G::BK - 1) / G::BK;
    const Shares shares = {s.streamed * steps, s.shares};
    const int64_t share = static_cast<int64_t>(blockIdx.x) - s.whole;
    int64_t number = blockIdx.x, first = 0, left = steps;
    if (share >= 0) {
        number = s.whole + shares.first(share) / steps;
        first = shares.first(share) % steps;
        left = shares.first(share + 1) - shares.first(share);
    }
    Shared<G> &shared = dynamic_shared<Shared<G>>();
    const ThreadTile<G> own(threadIdx.x);
    UNROLL(1)
    for (;;) {
        const Origin tile = raster_origin(s.p.C, G::BM, G::BN, static_cast<unsigned>(number));
        const int64_t last = first + left < steps ? first + left : steps;
        const int64_t begin = first == 0 ? 0 : K - (steps - first) * G::BK;
        Matrix A = s.p.A, B = s.p.B;
        A.data = address(A, 0, begin);
        B.data = address(B, begin, 0);
        A.cols = B.rows = K - (steps - last) * G::BK - begin;
        float sum[G::TM][G::TN] = {};
        block_product<G>(A, B, tile, own, sum);

        bool complete = last - first == steps;
        if (!complete) {
            const int64_t streamed = number - s.whole;
            const int64_t from = shares.of(streamed * steps);
            const int64_t to = shares.of(streamed * steps + steps - 1);
            store_part<G>(part_of<G>(s, share, share == from), sum);
            wait_for_kernel_before();
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
            store_thread_tile<G>(s.p, tile, own, sum);
        }
        left -= last - first;
        if (left == 0) {
            break;
        }
        first = 0;
        ++number;
        end_pipeline(shared.pipeline);
    }
}

/* ------------------------------------------------------------------ on the host */

constexpr KernelSpec clear_spec = {"clear", {0, 0, 0}, {1, 1}, {clearing_threads, 1}, 0, 0,
                                   1,       false,     ""};

template <class G> constexpr KernelSpec spec_of_shares()
{
    KernelSpec spec = spec_of<G>("streamk");
    spec.dynamic_bytes = sizeof(Shared<G>);
    spec.overlaps = true;
    return spec;
}

/* Which tiles are whole, and how many blocks share the others. */
struct Division {
    int64_t whole, shares;
};

/* In steps. By shares: the longest of them, a part that is written, and the parts that a last block adds.
 * Where there are fewer tiles than multiprocessors, p parts of a tile take steps / p + p / 2, the least
 * where p is sqrt(2 * steps). */
Division divide_steps(int64_t tiles, int64_t steps, int64_t multiprocessors)
{
    constexpr double part = 0.5; // to write it, or to add it
    const int64_t whole =
        tiles < multiprocessors ? 0 : tiles - tiles % multiprocessors - multiprocessors;
    const int64_t streamed = tiles - whole;
    const int64_t most = streamed * static_cast<int64_t>(sqrt(static_cast<double>(steps) / part));
    const int64_t shares = most < multiprocessors ? most : multiprocessors;
    const Division by_tiles = {tiles, 0};
    if (shares == 0 || tiles % multiprocessors == 0) {
        return by_tiles;
    }
    const int64_t longest = (streamed * steps + shares - 1) / shares;
    const int64_t parts = (shares + streamed - 1) / streamed + 1; // at most, of a tile
    const double time = static_cast<double>(longest) + part * static_cast<double>(1 + parts);
    const int64_t waves = (streamed + multiprocessors - 1) / multiprocessors;
    return time < static_cast<double>(waves * steps) ? Division{whole, shares} : by_tiles;
}

/* All tiles into as many parts of K as splitk makes of it. */
Division divide_as_splitk(const Sgemm *problem, int64_t tiles, int multiprocessors)
{
    const int splits = plan_splits(problem, multiprocessors).splits;
    return splits == 1 ? Division{tiles, 0} : Division{0, tiles * splits};
}

template <class G>
Status launch_shares(const Sgemm *problem, int multiprocessors, const Launch *where)
{
    const int64_t tiles = tiles_of(problem->C, G::BM, G::BN);
    const int64_t steps = (problem->A.cols + G::BK - 1) / G::BK;
    const Division by = divides_K ? divide_as_splitk(problem, tiles, multiprocessors)
                                  : divide_steps(tiles, steps, multiprocessors);
    KernelSpec spec = spec_of_shares<G>();
    StreamProduct s = {*problem, by.whole, tiles - by.whole, by.shares, nullptr, nullptr};
    if (by.shares == 0) {
        spec.overlaps = false; // it waits for no kernel before it
        return launch_blocks(streamk<G>, spec, by.whole, s, where);
    }
    const size_t of_parts = static_cast<size_t>(2 * by.shares * G::BM * G::BN) * sizeof(float);
    void *memory;
    Status status =
        scratch_take(of_parts + static_cast<size_t>(s.streamed) * sizeof(unsigned), where, &memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    s.parts = static_cast<float4 *>(memory);
    s.arrived = reinterpret_cast<unsigned *>(static_cast<char *>(memory) + of_parts);
    status = launch_blocks(clear, clear_spec, 1, s, where);
    if (status.code == STATUS_OK) {
        status = launch_blocks(streamk<G>, spec, by.whole + by.shares, s, where);
    }
    scratch_give(memory, where);
    return status;
}

typedef Geometry<128, 256, 32, 64, 64, 8, 16> Deep;
typedef Geometry<128, 256, 16, 64, 64, 8, 16> Shallow; // where a block has less than 196 KiB

} // namespace

LAUNCHER(streamk)
{
    int multiprocessors = 1; // where accesses are counted: one tile stands for as many as there are
#if !defined(SGEMM_COUNTED) || defined(SGEMM_WATCHED)
    const Status status = multiprocessors_of(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    multiprocessors = multiprocessors ? multiprocessors : 8;
#endif
    return has_shared_memory(where, spec_of_shares<Deep>())
               ? launch_shares<Deep>(problem, multiprocessors, where)
               : launch_shares<Shallow>(problem, multiprocessors, where);
}

VARIANT(streamk, "equal shares of all steps of K, wherever tiles begin and end", "streamk.cu",
        spec_of_shares<Deep>(), {8, 0});
