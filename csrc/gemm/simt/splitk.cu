// idea      if C has fewer tiles than the GPU runs blocks, divide K as well: each block computes
//           one slice of K for its tile, and a second kernel adds the partial sums.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a pipeline of four stages.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, 6 / 8 from shared memory, and 8 for
//           each partial sum.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds; if K is short, the
//           partial sums.
// next      streamk: equal shares of the work for all multiprocessors, wherever tiles begin and
//           end.
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

/* sum += A @ B for the block's tile of C. */
template <int BK>
KERNEL_BODY void block_product(const Matrix &A, const Matrix &B, const Origin &tile, int ty, int tx,
                               float (&sum)[TM][TN])
{
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
    int t = 0;
    multiply_tiles<ROWS, COLS>(shared.As, shared.Bs, shared.full, ty, tx, t, tiles, load, sum);
}

/* A product whose K is divided into slices. */
struct SplitProduct {
    Sgemm p;
    int slices;
    float *partial_sums; // a row-major M x N matrix per slice; NULL if there is one slice
};

template <int BK> __global__ void __launch_bounds__(threads, 1) splitk(const SplitProduct s)
{
    const unsigned tiles = static_cast<unsigned>(tiles_of(s.p.C, BM, BN));
    const unsigned slice = blockIdx.x / tiles;
    const Origin tile = tile_in_bands<BM, BN>(s.p.C, blockIdx.x % tiles);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // This thread's results: rows ty ... ty + 3 and those 4 * ROWS further on, columns likewise.
    const int ty = warp / (BN / WN) * WM + lane / COLS * 4;
    const int tx = warp % (BN / WN) * WN + lane % COLS * 4;
    // Slices are whole tiles deep, except for the last one.
    const int64_t K = s.p.A.cols, depth = (K + BK - 1) / BK;
    const int64_t begin = depth * slice / s.slices * BK, end = depth * (slice + 1) / s.slices * BK;
    Sgemm p = s.p;
    p.A.data = address(p.A, 0, begin);
    p.B.data = address(p.B, begin, 0);
    p.A.cols = p.B.rows = at_most(end, K) - begin;
    if (s.slices > 1) {
        p.C.data = s.partial_sums + slice * p.C.rows * p.C.cols;
        p.C.row_stride = p.C.cols;
        p.alpha = 1.0f;
        p.beta = 0.0f;
    }
    float sum[TM][TN] = {};
    block_product<BK>(p.A, p.B, tile, ty, tx, sum);
    store_results<ROWS, COLS>(p, tile.row + ty, tile.col + tx, sum);
}

constexpr int reduce_threads = 256;

/* Adds the partial sums, one result per thread, in the order of k. */
__global__ void __launch_bounds__(reduce_threads) reduce(const SplitProduct s)
{
    const int64_t N = s.p.C.cols, size = s.p.C.rows * N;
    const int64_t index = static_cast<int64_t>(blockIdx.x) * reduce_threads + threadIdx.x;
    if (index >= size) {
        return;
    }
    float sum = s.partial_sums[index];
    UNROLL(4)
    for (int slice = 1; slice < s.slices; ++slice) {
        sum += s.partial_sums[slice * size + index];
    }
    store(s.p, index / N, index % N, sum);
}

constexpr KernelSpec reduce_spec = {
    .symbol = "reduce", .thread_tile = {1, 1}, .threads = {reduce_threads, 1}};

template <int BK>
constexpr KernelSpec spec = {.symbol = "splitk",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {TM, TN},
                             .threads = {threads, 1},
                             .dynamic_bytes = sizeof(Shared<BK>)};

template <int BK> Status launch(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    Status status = multiprocessors_to_fill(where, &multiprocessors);
    const int64_t M = problem->C.rows, N = problem->C.cols, tiles = tiles_of(problem->C, BM, BN);
    // As many slices as run at once, each at least four tiles deep.
    const int64_t fitting = multiprocessors / tiles, deepest = problem->A.cols / (4 * BK);
    SplitProduct s = {*problem, static_cast<int>(fitting < deepest ? fitting : deepest), nullptr};
    if (status.code != STATUS_OK || s.slices < 2) {
        s.slices = 1;
        return status.code != STATUS_OK ? status
                                        : launch_blocks(splitk<BK>, spec<BK>, tiles, s, where);
    }
    void *memory;
    status = scratch_alloc(static_cast<size_t>(s.slices * M * N) * sizeof(float), where, &memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    s.partial_sums = static_cast<float *>(memory);
    status = launch_blocks(splitk<BK>, spec<BK>, tiles * s.slices, s, where);
    if (status.code == STATUS_OK) {
        status = launch_blocks(reduce, reduce_spec, (M * N + reduce_threads - 1) / reduce_threads,
                               s, where);
    }
    scratch_free(memory, where);
    return status;
}

} // namespace

LAUNCHER(splitk)
{
    return (has_shared_memory(where, spec<DEPTH>) ? launch<DEPTH> : launch<DEPTH / 2>)(problem,
                                                                                       where);
}

VARIANT(splitk, "several blocks for one tile, each with a slice of K", "splitk.cu", spec<DEPTH>,
        {8, 0});
