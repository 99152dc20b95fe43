/* One block's tile of C: its shape, its place, and the loops that multiply. */
#ifndef SGEMM_ENGINE_TILE_PRODUCT_H
#define SGEMM_ENGINE_TILE_PRODUCT_H

#include "tile_loader.h"
#include "tiles.h"

/* DEEP of TileLoader for sliced tiles, measured on 9.0. With 16, the compilers for other
 * architectures spill registers, and that for 9.0 does if threads have 12 rows. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
template <int TM> constexpr int deep_in_slices = 8;
#else
template <int TM> constexpr int deep_in_slices = TM == 12 ? 8 : 16;
#endif

/* A tile configuration (see tiles.h) for one layout of the operands: whether A and B are
 * contiguous along K. */
template <int BM_, int BN_, int BK_, int WM_, int WN_, int TM_, int TN_, int SLICES, bool A_ALONG,
          bool B_ALONG>
struct Geometry {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, TM = TM_, TN = TN_;
    static constexpr int lda = BM + quad_padding, ldb = BN + quad_padding; // of shared tiles
    static constexpr int stages = TILE_STAGES, slices = SLICES;
    static constexpr int deep = SLICES > 1 ? deep_in_slices<TM> : 8;
    static constexpr int warps_across = BN / WN, warps_of_slice = BM / WM * warps_across;
    static constexpr int threads = SLICES * warps_of_slice * 32;
    static constexpr int lanes_across = WN / TN, lanes_down = WM / TM;
    static constexpr bool in_twos = // see ThreadTile
        TM * TN < 64 && lanes_across % 2 == 0 && lanes_down % 2 == 0;
    static_assert(lanes_across * lanes_down == 32, "a warp has 32 threads");
    static_assert(TM % 4 == 0 && TN % 4 == 0, "threads own float4s");
    static_assert(WM % TM == 0 && WN % TN == 0 && BM % WM == 0 && BN % WN == 0, "all are whole");

    struct Shared {
        float As[stages][BK][lda]; // (stages, BK, BM)
        float Bs[stages][BK][ldb]; // (stages, BK, BN)
        Pipeline<stages> pipeline;
        bool is_last; // see last_to_arrive
    };
    static_assert(sizeof(Shared) <= TILE_SHARED(BM, BN, BK), "the planner counts on it");

    typedef TileLoader<BM, BK, lda, threads, deep, A_ALONG> LoaderOfA;
    typedef TileLoader<BN, BK, ldb, threads, deep, B_ALONG> LoaderOfB;
};

/* Describes the launch of a kernel. */
template <class G> inline KernelSpec spec_of(const char *symbol, int cluster = 1)
{
    KernelSpec spec = {};
    spec.symbol = symbol;
    spec.block_tile[0] = G::BM;
    spec.block_tile[1] = G::BN;
    spec.block_tile[2] = G::BK;
    spec.thread_tile[0] = G::TM;
    spec.thread_tile[1] = G::TN;
    spec.threads[0] = G::threads;
    spec.threads[1] = 1;
    spec.dynamic_bytes = sizeof(typename G::Shared);
    spec.cluster = cluster;
    return spec;
}

/* The results of a thread: float4s, down(i) and right(j) from its first result, which is at
 * (row, col) of the block's tile. The lanes of a warp are ordered by rows, or in 2 x 2 groups
 * that share float4s of A and of B (in_twos). Then shared memory serves 16 lanes at once instead
 * of 8. This pays only if shared memory is the bottleneck. */
template <class G> struct ThreadTile {
    int row, col;

    __device__ __forceinline__ explicit ThreadTile(unsigned thread)
    {
        const unsigned warp = thread / 32 % G::warps_of_slice, lane = thread % 32;
        constexpr unsigned rows = G::in_twos ? 2 : 1, cols = G::in_twos ? 2 : G::lanes_across;
        constexpr unsigned abreast = rows * G::lanes_across; // lanes
        const unsigned down = lane / abreast * rows + lane / cols % rows;
        const unsigned right = lane % abreast / (rows * cols) * cols + lane % cols;
        row = static_cast<int>(warp / G::warps_across * G::WM + down * 4);
        col = static_cast<int>(warp % G::warps_across * G::WN + right * 4);
    }
    __device__ __forceinline__ ThreadTile(int row, int col) : row(row), col(col) {}

    static __device__ __forceinline__ constexpr int down(int i)
    {
        return i / 4 * 4 * G::lanes_down + i % 4;
    }
    static __device__ __forceinline__ constexpr int right(int j)
    {
        return j / 4 * 4 * G::lanes_across + j % 4;
    }
};

/* The values that a thread multiplies at one step of K: float4s of a and b, ROWS and COLS
 * float4s apart. There are two sets: one loads while the other is multiplied. */
template <int TM, int TN, int ROWS, int COLS> struct Fragments {
    float a[TM], b[TN];

    /* From this thread's first quads in the shared tiles. */
    __device__ __forceinline__ void load(const float *As, const float *Bs)
    {
        for (int i = 0; i < TM; i += 4) {
            read_quad(a + i, As + i * ROWS);
        }
        for (int j = 0; j < TN; j += 4) {
            read_quad(b + j, Bs + j * COLS);
        }
    }

    /* Adds the products of rows FIRST to LAST - 1. Every other row goes backwards, so that each
     * multiply-add shares an operand with the one before. */
    template <int FIRST = 0, int LAST = TM>
    __device__ __forceinline__ void multiply(float (&sum)[TM][TN]) const
    {
        for (int i = FIRST; i < LAST; ++i) {
            for (int n = 0; n < TN; ++n) {
                const int j = i % 2 ? TN - 1 - n : n;
                sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
            }
        }
    }
};

constexpr int band_rows = 8;

/* The first row and column of a tile of C. Tiles are numbered in bands of 8 rows, column by
 * column in each band. Blocks that run together then cover nearly a square of C, and share more
 * of A and B in the L2 cache. */
static __device__ __forceinline__ Origin raster_origin(const Matrix &C, int block_rows,
                                                       int block_cols, unsigned number)
{
    const unsigned down = static_cast<unsigned>((C.rows + block_rows - 1) / block_rows);
    const unsigned across = static_cast<unsigned>((C.cols + block_cols - 1) / block_cols);
    const auto [band, in_band] = divided(number, band_rows * across);
    const unsigned left = down - band * band_rows, rows = left < band_rows ? left : band_rows;
    const unsigned col = rows == band_rows ? in_band / band_rows : divided(in_band, rows).quotient;
    const unsigned row = in_band - col * rows;
    return {static_cast<int64_t>(band * band_rows + row) * block_rows,
            static_cast<int64_t>(col) * block_cols};
}

/* The position of a tile of C, in half the registers of its origin. */
template <class G> struct TileNumber {
    unsigned down, across;

    __device__ __forceinline__ explicit TileNumber(const Origin &tile)
        : down(static_cast<unsigned>(tile.row / G::BM)),
          across(static_cast<unsigned>(tile.col / G::BN))
    {}

    __device__ __forceinline__ Origin origin()
    {
        not_known_before(down);
        not_known_before(across);
        return {static_cast<int64_t>(down) * G::BM, static_cast<int64_t>(across) * G::BN};
    }
};

/* Adds the products of all tiles. When tile t is in shared memory, begin_next(t + 1, stage)
 * starts the copies of a later tile. It is also called after the last tile. */
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

/* Adds A @ B for one tile of C. AT_ONCE: how many tiles are being copied before the first is
 * complete. AHEAD: how many tiles the copies stay ahead of the arithmetic. With AHEAD = 2, a
 * thread arrives at tile t's barrier before it starts the copies of tile t + 1, after it has
 * read all of tile t - 2. A thread that has waited for tile t may therefore overwrite tile t -
 * 2. */
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
    typename G::LoaderOfA a_loader(A, tile.row, thread);
    typename G::LoaderOfB b_loader(transposed(B), tile.col, thread);

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

#endif
