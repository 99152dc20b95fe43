// idea      give every multiprocessor an equal share of the work, wherever tiles begin and end
//           (stream-K, D. Merrill, D. Garland et al., 2023). Tiles come in waves of one per
//           multiprocessor, and the last wave is seldom full. So the tiles of the last two waves
//           are laid end to end, and each block takes an equal share of their steps. The last of a
//           tile's blocks to finish adds the partial sums in the order of k: the same bits each
//           time. No block waits for another.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a pipeline of four stages.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, 6 / 8 from shared memory, and 8 per
//           partial sum.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds; with few tiles, the
//           partial sums.
// next      tma: a copy engine loads the tiles, instead of threads that compute addresses.
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
    bool is_last;          // of a tile's blocks to arrive
};

/* sum += A @ B for the block's tile of C. t counts on from one tile of C to the block's next. */
template <int BK>
KERNEL_BODY void block_product(const Matrix &A, const Matrix &B, const Origin &tile, int ty, int tx,
                               int &t, float (&sum)[TM][TN])
{
    Shared<BK> &shared = dynamic_shared<Shared<BK>>();
    AsyncLoader<BM, BK, threads> a_loader(A, tile.row, threadIdx.x);
    AsyncLoader<BN, BK, threads> b_loader(transposed(B), tile.col, threadIdx.x);
    const int first = t, tiles = static_cast<int>((A.cols + BK - 1) / BK);
    const auto load = [&](int t) {
        if (t < first + tiles) {
            const int depth = clamped(A.cols - static_cast<int64_t>(t - first) * BK);
            a_loader.load(shared.As[t % STAGES], depth);
            b_loader.load(shared.Bs[t % STAGES], depth);
        }
        cp_async_mbarrier_arrive(shared.full + t % STAGES);
    };
    multiply_tiles<ROWS, COLS>(shared.As, shared.Bs, shared.full, ty, tx, t, first + tiles, load,
                               sum);
    ++t;
}

/* A product that divides some tiles of C among blocks. A step multiplies one tile of A by one of B.
 * The steps of all tiles of C are numbered consecutively. */
struct StreamProduct {
    Sgemm p;
    int64_t steps;       // per tile of C
    int64_t whole_tiles; // the first tiles of C, with one block each
    // The steps of the other tiles, and the blocks that share them.
    int64_t shared_steps = 0, shares = 0;
    // Per share: of the tile that it ends within, and of the one that it begins within.
    float *partial_sums = nullptr;
    // Per shared tile: blocks that have arrived; 0 again after the last.
    unsigned *arrivals = nullptr;

    __device__ __forceinline__ int64_t first_step(int64_t share) const
    {
        return whole_tiles * steps + shared_steps * share / shares;
    }
    __device__ __forceinline__ int64_t share_of(int64_t step) const
    {
        return ((step - whole_tiles * steps + 1) * shares - 1) / shared_steps;
    }
    __device__ __forceinline__ float *partial_sums_of(int64_t share, bool starts_tile) const
    {
        return partial_sums + (2 * share + starts_tile) * (BM * BN) + threadIdx.x;
    }
};

/* Writes the block's partial sums of a tile to memory. In the last of the tile's blocks to arrive,
 * sum becomes the sum of all of them, and the result is true. */
template <int BK>
KERNEL_BODY bool add_partial_sums(const StreamProduct &s, int64_t number, float (&sum)[TM][TN])
{
    const int64_t first = s.share_of(number * s.steps),
                  last = s.share_of((number + 1) * s.steps - 1);
    const int64_t share = blockIdx.x - s.whole_tiles;
    float *from = s.partial_sums_of(share, share == first);
    UNROLL(TM * TN)
    for (int i = 0; i < TM * TN; ++i) {
        from[i * threads] = sum[i / TN][i % TN];
    }
    bool &is_last = dynamic_shared<Shared<BK>>().is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned others = static_cast<unsigned>(last - first);
        __threadfence(); // all threads' partial sums are visible before the block arrives
        is_last = atomicInc(s.arrivals + number - s.whole_tiles, others) == others;
        __threadfence(); // the others' partial sums are read after their arrivals
    }
    __syncthreads();
    if (!is_last) {
        return false;
    }
    UNROLL(1)
    for (int64_t other = first; other <= last; ++other) {
        from = s.partial_sums_of(other, other == first);
        UNROLL(TM * TN)
        for (int i = 0; i < TM * TN; ++i) {
            sum[i / TN][i % TN] = (other == first ? 0.0f : sum[i / TN][i % TN]) + from[i * threads];
        }
    }
    return true;
}

template <int BK> __global__ void __launch_bounds__(threads, 1) streamk(const StreamProduct s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // This thread's results: rows ty ... ty + 3 and those 4 * ROWS further on, columns likewise.
    const int ty = warp / (BN / WN) * WM + lane / COLS * 4;
    const int tx = warp % (BN / WN) * WN + lane % COLS * 4;
    Shared<BK> &shared = dynamic_shared<Shared<BK>>();
    if (threadIdx.x < STAGES) {
        mbarrier_init(shared.full + threadIdx.x, threads);
    }
    __syncthreads(); // the barriers are initialized
    const int64_t share = blockIdx.x - s.whole_tiles, K = s.p.A.cols;
    int64_t step = share < 0 ? blockIdx.x * s.steps : s.first_step(share);
    const int64_t end = share < 0 ? step + s.steps : s.first_step(share + 1);
    int t = 0;
    UNROLL(1)
    while (step < end) {
        const int64_t number = step / s.steps, begin = number * s.steps;
        const int64_t to = at_most(end, begin + s.steps);
        const Origin tile = tile_in_bands<BM, BN>(s.p.C, static_cast<unsigned>(number));
        Sgemm p = s.p;
        p.A.data = address(p.A, 0, (step - begin) * BK);
        p.B.data = address(p.B, (step - begin) * BK, 0);
        p.A.cols = p.B.rows = at_most((to - begin) * BK, K) - (step - begin) * BK;
        float sum[TM][TN] = {};
        block_product<BK>(p.A, p.B, tile, ty, tx, t, sum);
        if (to - step == s.steps || add_partial_sums<BK>(s, number, sum)) {
            store_results<ROWS, COLS>(p, tile.row + ty, tile.col + tx, sum);
        }
        step = to;
    }
}

template <int BK>
constexpr KernelSpec spec = {.symbol = "streamk",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {TM, TN},
                             .threads = {threads, 1},
                             .dynamic_bytes = sizeof(Shared<BK>)};

template <int BK> Status launch(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    Status status = multiprocessors_to_fill(where, &multiprocessors);
    const int64_t tiles = tiles_of(problem->C, BM, BN), K = problem->A.cols;
    const int64_t steps = K == 0 ? 1 : (K + BK - 1) / BK; // if K is 0, C = beta * C is left to do
    StreamProduct s = {*problem, steps, tiles};
    // The last wave and the one before are shared, by blocks with at least four steps each.
    const int64_t waves = tiles / multiprocessors,
                  whole = waves > 1 ? (waves - 1) * multiprocessors : 0;
    const int64_t shared = tiles - whole, most = shared * steps / 4;
    const int64_t shares = most < multiprocessors ? most : multiprocessors;
    void *memory;
    if (status.code != STATUS_OK || tiles % multiprocessors == 0 || shares < 2 ||
        scratch_alloc(static_cast<size_t>(2 * shares * BM * BN) * sizeof(float), where, &memory)
                .code != STATUS_OK) {
        return status.code != STATUS_OK ? status
                                        : launch_blocks(streamk<BK>, spec<BK>, tiles, s, where);
    }
    s.partial_sums = static_cast<float *>(memory);
    status = counters_alloc(static_cast<size_t>(shared), where, &s.arrivals);
    if (status.code == STATUS_OK) {
        s.whole_tiles = whole, s.shared_steps = shared * steps, s.shares = shares;
        status = launch_blocks(streamk<BK>, spec<BK>, whole + shares, s, where);
        scratch_free(s.arrivals, where);
    }
    scratch_free(memory, where);
    return status;
}

} // namespace

LAUNCHER(streamk)
{
    return (has_shared_memory(where, spec<DEPTH>) ? launch<DEPTH> : launch<DEPTH / 2>)(problem,
                                                                                       where);
}

VARIANT(streamk, "equal shares of all steps of K, wherever tiles begin and end", "streamk.cu",
        spec<DEPTH>, {8, 0});
