// idea      copy tiles asynchronously, straight to shared memory, several tiles ahead of the
//           arithmetic.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a pipeline of four stages.
// traffic   6 / 128 bytes from global memory per multiply-add, and 6 / 8 from shared memory.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds.
// next      raster: choose which blocks run together, so that they share tiles in the L2 cache.
#include "async_tiles.h"

namespace {

constexpr int BM = TUNABLE(BM, 128), BN = TUNABLE(BN, 256);
constexpr int DEPTH = TUNABLE(BK, 32); // BK; half of it on a GPU with less shared memory per block
constexpr int WM = TUNABLE(WM, 64), WN = TUNABLE(WN, 64); // of a warp
constexpr int TM = TUNABLE(TM, 8), TN = TUNABLE(TN, 16);
constexpr int STAGES = TUNABLE(STAGES, 4);            // tiles of each operand in shared memory
constexpr int lda = BM + padding, ldb = BN + padding; // of the shared tiles
constexpr int ROWS = WM / TM, COLS = WN / TN;         // a warp's threads, as a rectangle
constexpr int threads = (BM / WM) * (BN / WN) * 32;
static_assert(ROWS * COLS == 32, "a warp's threads share its results evenly");

template <int BK> struct Shared {
    float As[STAGES][BK][lda];
    float Bs[STAGES][BK][ldb];
    Mbarrier full[STAGES]; // of a stage: all threads' copies have landed
};

/* sum += A @ B for the block's tile of C. Tile t of the operands passes through stage t % STAGES. A
 * thread arrives at its barrier after it has read tile t - 2. So once tile t is complete, all
 * threads have read tile t - 3, and tile t + 1 may replace it. No warp waits for the slowest. */
template <int BK>
KERNEL_BODY void block_product(const Matrix &A, const Matrix &B, const Origin &tile, int ty, int tx,
                               float (&sum)[TM][TN])
{
    static_assert(STAGES >= 4, "tile t + 1 replaces tile t - 3 or an older one");
    Shared<BK> &shared = dynamic_shared<Shared<BK>>();
    AsyncLoader<BM, BK, threads> a_loader(A, tile.row, threadIdx.x);
    AsyncLoader<BN, BK, threads> b_loader(transposed(B), tile.col, threadIdx.x);
    const int tiles = static_cast<int>((A.cols + BK - 1) / BK);
    const auto load = [&](int t) {
        if (t < tiles) {
            const int depth = clamped(A.cols - static_cast<int64_t>(t) * BK);
            a_loader.load(shared.As[t % STAGES], depth);
            b_loader.load(shared.Bs[t % STAGES], depth);
        }
        cp_async_mbarrier_arrive(shared.full + t % STAGES);
    };
    if (threadIdx.x < STAGES) {
        mbarrier_init(shared.full + threadIdx.x, threads);
    }
    __syncthreads(); // the barriers are initialized
    load(0);
    mbarrier_wait(shared.full, 0);

    Fragment<TM, TN, ROWS, COLS> even, odd = {};
    const float *a = &shared.As[0][0][ty], *b = &shared.Bs[0][0][tx];
    even.load(a, b);
    UNROLL(1)
    for (int t = 0; t < tiles; ++t) {
        const int next = (t + 1) % STAGES;
        load(t + 1);
        // Two steps at a time and not unrolled: otherwise nvcc interleaves the steps and loses the
        // order of the multiply-adds. The loop ends within a step, so that no step waits for values
        // that were just loaded.
        UNROLL(1)
        for (int k = 0; k < BK - 2; k += 2) {
            odd.multiply<2, TM>(sum);
            odd.load(a + lda, b + ldb);
            even.multiply(sum);
            even.load(a += 2 * lda, b += 2 * ldb);
            odd.multiply<0, 2>(sum);
        }
        odd.multiply<2, TM>(sum);
        odd.load(a + lda, b + ldb);
        even.multiply(sum);
        // After the last tile too, since a branch would cost more.
        mbarrier_wait(shared.full + next, (t + 1) / STAGES % 2);
        even.load(a = &shared.As[next][0][ty], b = &shared.Bs[next][0][tx]);
        odd.multiply<0, 2>(sum);
    }
    odd.multiply<2, TM>(sum);
}

template <int BK> __global__ void __launch_bounds__(threads, 1) async(const Sgemm p)
{
    const Origin tile = tile_origin(p.C, BM, BN);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // This thread's results: rows ty ... ty + 3 and those 4 * ROWS further on, columns likewise.
    const int ty = warp / (BN / WN) * WM + lane / COLS * 4;
    const int tx = warp % (BN / WN) * WN + lane % COLS * 4;
    float sum[TM][TN] = {};
    block_product<BK>(p.A, p.B, tile, ty, tx, sum);
    store_results<ROWS, COLS>(p, tile.row + ty, tile.col + tx, sum);
}

template <int BK>
constexpr KernelSpec spec = {.symbol = "async",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {TM, TN},
                             .threads = {threads, 1},
                             .dynamic_bytes = sizeof(Shared<BK>)};

} // namespace

LAUNCHER(async)
{
    return has_shared_memory(where, spec<DEPTH>)
               ? launch_tiles(async<DEPTH>, spec<DEPTH>, problem, where)
               : launch_tiles(async<DEPTH / 2>, spec<DEPTH / 2>, problem, where);
}

BATCHED_VARIANT(async, "asynchronous copies to shared memory, a tile ahead", "09_async.cu",
                spec<DEPTH>, {8, 0});
