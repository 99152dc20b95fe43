// idea      copy tiles asynchronously, straight to shared memory, a tile ahead of the arithmetic.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a pipeline of four stages.
// traffic   6 / 128 bytes from global memory per multiply-add, and 6 / 8 from shared memory.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds.
// next      raster: which blocks run together, so that they find each other's tiles in the L2
//           cache.
#include "07_prefetch.cu"
#include "09_barrier.h"
#include "09_tiles.h"

/* Begins to copy one float to shared memory; writes 0 where it is not `there`, and reads nothing.
 * The thread goes on at once, and no register holds what is on its way. The L2 cache is told to
 * fetch all 128 or 256 bytes around it, whose others the next copies take. */
template <int FETCHED>
static __device__ __forceinline__ void copy_async(float *to, const float *from, bool there)
{
    static_assert(FETCHED == 128 || FETCHED == 256, "sizes that cp.async knows");
#ifdef SGEMM_ASYNC
    const unsigned address = shared_address(to);
    const int bytes = there ? 4 : 0;
    if constexpr (FETCHED == 128) {
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(address),
                     "l"(from), "r"(bytes));
    } else {
        asm volatile("cp.async.ca.shared.global.L2::256B [%0], [%1], 4, %2;" ::"r"(address),
                     "l"(from), "r"(bytes));
    }
#elif !defined(__CUDACC__)
    grid_copy_async(to, there ? from : nullptr, 4, __LINE__);
#endif
}

/* The same for four neighbours. Both addresses are aligned to 16 bytes. */
static __device__ __forceinline__ void copy_quad_async(float *to, const float *from, bool there)
{
#ifdef SGEMM_ASYNC
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0));
#elif !defined(__CUDACC__)
    grid_copy_async(to, there ? from : nullptr, 16, __LINE__);
#endif
}

/* The pipeline's barriers, in shared memory; tile t goes through stage t % STAGES, which is full
 * when what all threads of the block copy to it is there. Threads arrive at least a whole tile
 * before they wait, so that no warp waits for another longer than it must.
 *
 * That tells as well which stage may be filled again. A thread arrives at tile t's barrier after it
 * has multiplied all of tile t - 3, if there is one. Who has waited for tile t therefore knows of
 * every thread that it has, and may put tile t + 1 in that tile's place. */
template <int STAGES> struct Pipeline {
    Barrier full[STAGES];

    __device__ __forceinline__ void begin(int thread, int threads)
    {
        if (thread < STAGES) {
            barrier_begin(full + thread, threads);
        }
        __syncthreads();
    }

    /* This thread has begun all of its copies of the tile, if it has any. */
    __device__ __forceinline__ void commit(int tile)
    {
#ifdef SGEMM_ASYNC
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
                         shared_address(full + tile % STAGES))
                     : "memory");
#elif !defined(__CUDACC__)
        grid_copy_arrive(full + tile % STAGES, __LINE__);
#endif
    }

    /* Until the tile is there. */
    __device__ __forceinline__ void wait(int tile)
    {
        barrier_wait(full + tile % STAGES, tile / STAGES % 2);
    }
};

/* sum += the products of so many tiles, all of which the pipeline brings: what this and later rungs are
 * made of. When tile t has come, begin_next(t + 1, stage) begins what is to bring the next one to that stage;
 * after the last tile it is called as well. */
template <class G, class BeginNext>
KERNEL_BODY void multiply_tiles(int tiles, const ThreadTile<G> &own, float (&sum)[G::TM][G::TN],
                                const BeginNext &begin_next)
{
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
    constexpr int cut = 2; // rows of a step before the cut
    Fragments<G::TM, G::TN, G::lanes_down, G::lanes_across> even, odd = {};
    constexpr int own_depth = G::BK / G::slices; // of a tile: all of it, or this warp's slice
    const int slice = G::slices == 1 ? 0 : threadIdx.x / 32 / G::warps_of_slice * own_depth;
    const float *As = &shared.As[0][slice][own.row], *Bs = &shared.Bs[0][slice][own.col];
    shared.pipeline.wait(0);
    even.load(As, Bs);
    UNROLL(1)
    for (int t = 0; t < tiles; ++t) {
        const int next = (t + 1) % G::stages;
        begin_next(t + 1, next);
        // Two steps at a time, in a loop that stays a loop: written out, the compiler would mix the
        // steps' multiplications, and lose the order in which they share operands. The loop is cut
        // inside a step, where what it has loaded last is not needed at once.
        UNROLL(1)
        for (int k = 0; k < own_depth - 2; k += 2) {
            odd.template multiply<cut, G::TM>(sum);
            odd.load(As + G::lda, Bs + G::ldb);
            even.multiply(sum);
            even.load(As + 2 * G::lda, Bs + 2 * G::ldb);
            odd.template multiply<0, cut>(sum);
            As += 2 * G::lda;
            Bs += 2 * G::ldb;
        }
        odd.template multiply<cut, G::TM>(sum);
        odd.load(As + G::lda, Bs + G::ldb);
        even.multiply(sum);
        shared.pipeline.wait(t + 1); // after the last tile, too: a branch would cost more
        As = &shared.As[next][slice][own.row];
        Bs = &shared.Bs[next][slice][own.col];
        even.load(As, Bs);
        odd.template multiply<0, cut>(sum);
    }
    odd.template multiply<cut, G::TM>(sum);
}

/* sum += A @ B for the block's tile of C, whose first row and column `tile` names. AT_ONCE: of how many
 * tiles the copies begin before the first is there. AHEAD: how many tiles ahead of the arithmetic they then go on.
 *
 * If that is two, a thread arrives at tile t's barrier not when it has begun its copies, but before it begins those of
 * tile t + 1, and has read all of tile t - 2. So who has waited for tile t may put tile t + 2 in that tile's place. */
template <class G, int AT_ONCE = 1, int AHEAD = 1>
KERNEL_BODY void block_product(const Matrix &A, const Matrix &B, const Origin &tile,
                               const ThreadTile<G> &own, float (&sum)[G::TM][G::TN])
{
    static_assert(G::stages >= 4, "tile t + 1 takes the place of tile t - 3, or of an older one");
    static_assert(AHEAD == 1 || AHEAD == 2, "farther ahead there is no free stage");
    static_assert(AT_ONCE >= AHEAD && AT_ONCE < G::stages,
                  "the first take nobody's place, nor does the next");
    constexpr int arrived =
        AT_ONCE + 1 - AHEAD; // at so many barriers, before the first tile is there
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
    const int thread = threadIdx.x;
    LoaderOfA<G> a_loader(A, tile.row, thread);
    LoaderOfB<G> b_loader(transposed(B), tile.col, thread);

    // The first tile takes what K leaves over, so that all others are whole.
    const int64_t K = A.cols;
    const int tiles = static_cast<int>((K + G::BK - 1) / G::BK);
    int depth = static_cast<int>(K - static_cast<int64_t>(tiles - 1) * G::BK);
    UNROLL(1)
    for (int t = 0; t < AT_ONCE; ++t) {
        if (t < tiles) {
            a_loader.load_part(shared.As[t], depth);
            b_loader.load_part(shared.Bs[t], depth);
        }
        if (t == 0) {
            shared.pipeline.begin(thread, G::threads); // while the first tile is on its way
        }
        if (t < arrived && (AT_ONCE == 1 || t <= tiles)) {
            shared.pipeline.commit(t);
        }
        depth = G::BK;
    }
    multiply_tiles<G>(tiles, own, sum, [&](int t, int stage) {
        if (AHEAD == 2 && t >= arrived) {
            shared.pipeline.commit(t);
        }
        const int next = t + AHEAD - 1;
        if (next >= AT_ONCE && next < tiles) {
            const int to = AHEAD == 1 ? stage : next % G::stages;
            a_loader.load(shared.As[to]);
            b_loader.load(shared.Bs[to]);
        }
        if (AHEAD == 1 && t >= arrived) {
            shared.pipeline.commit(t);
        }
    });
}

#if THIS_RUNG
namespace {

template <class G> __global__ void __launch_bounds__(G::threads) async(const Sgemm p)
{
    const Origin tile = tile_origin(p.C, G::BM, G::BN);
    const ThreadTile<G> own(threadIdx.x);
    float sum[G::TM][G::TN] = {};
    block_product<G>(p.A, p.B, tile, own, sum);
    store_thread_tile<G>(p, tile, own, sum);
}

typedef Geometry<TUNABLE(BM, 128), TUNABLE(BN, 256), TUNABLE(BK, 32), TUNABLE(WM, 64),
                 TUNABLE(WN, 64), TUNABLE(TM, 8), TUNABLE(TN, 16), TUNABLE(STAGES, 4)>
    Deep;
// Where a block has less than 196 KiB.
typedef Geometry<Deep::BM, Deep::BN, Deep::BK / 2, Deep::WM, Deep::WN, Deep::TM, Deep::TN,
                 Deep::stages>
    Shallow;
template <class G> constexpr KernelSpec spec = spec_of<G>("async");

} // namespace

LAUNCHER(async)
{
    return has_shared_memory(where, spec<Deep>)
               ? launch_tiles(async<Deep>, spec<Deep>, problem, where)
               : launch_tiles(async<Shallow>, spec<Shallow>, problem, where);
}

VARIANT(async, "asynchronous copies to shared memory, a tile ahead", "09_async.cu", spec<Deep>,
        {8, 0});
#endif
