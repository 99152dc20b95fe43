/* One block's tile of C: its geometry, its position, and the main loop. */
#ifndef SGEMM_GEMM_TILE_PRODUCT_H
#define SGEMM_GEMM_TILE_PRODUCT_H

#include "../plan/tiles.h"
#include "fragment.h"
#include "tile_loader.h"

/* DEEP of TileLoader for tiles with slices, measured on 9.0. With 16, the compiler spills registers
 * on other architectures, and on 9.0 if threads have 12 rows. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
template <int TM> constexpr int deep_in_slices = 8;
#else
template <int TM> constexpr int deep_in_slices = TM == 12 ? 8 : 16;
#endif

/* A tile configuration (see tiles.h) for one layout of the operands: whether A and B are
 * contiguous along K. */
template <int BM_, int BN_, int BK_, int WM_, int WN_, int TM_, int TN_, int SLICES, bool A_K_MAJOR,
          bool B_K_MAJOR>
struct Geometry {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, TM = TM_, TN = TN_;
    static constexpr int lda = BM + float4_padding, ldb = BN + float4_padding; // of shared tiles
    static constexpr int stages = TILE_STAGES, slices = SLICES;
    static constexpr bool same_layouts = A_K_MAJOR == B_K_MAJOR; // of A and B transposed
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
        bool is_last; // for last_to_arrive()
    };
    static_assert(sizeof(Shared) <= TILE_SHARED(BM, BN, BK), "the planner counts on it");

    typedef TileLoader<BM, BK, lda, threads, deep, A_K_MAJOR> LoaderOfA;
    typedef TileLoader<BN, BK, ldb, threads, deep, B_K_MAJOR> LoaderOfB;
};

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

/* The results of a thread. Result (i, j) is down(i) rows and right(j) columns from the first one,
 * which is at (row, col) of the block's tile. Lanes are numbered row by row, or in 2 x 2 groups
 * that read the same float4s of A and B (in_twos). In groups, shared memory delivers data to 16
 * lanes per cycle instead of 8, which pays only if shared memory is the bottleneck. */
template <class G> struct ThreadTile {
    int row, col;

    __device__ __forceinline__ explicit ThreadTile(unsigned thread)
    {
        const unsigned warp = thread / 32 % G::warps_of_slice, lane = thread % 32;
        constexpr unsigned rows = G::in_twos ? 2 : 1, cols = G::in_twos ? 2 : G::lanes_across;
        constexpr unsigned abreast = rows * G::lanes_across; // lanes in such rows
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

constexpr int band_rows = 8;

/* The first row and column of a tile of C. Tiles are numbered in bands of 8 rows, column by column
 * within a band. Blocks that run at the same time then cover nearly a square of C and share more of
 * A and B in the L2 cache. */
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
        recompute_from(down);
        recompute_from(across);
        return {static_cast<int64_t>(down) * G::BM, static_cast<int64_t>(across) * G::BN};
    }
};

/* The main loop. When a tile t is in shared memory, even the last one, it calls
 * begin_next(t + 1, stage of tile t + 1). That call starts the copies of a later tile, if there is
 * one. */
template <class G, class BeginNext>
KERNEL_BODY void multiply_tiles(int tiles, const ThreadTile<G> &own, float (&sum)[G::TM][G::TN],
                                const BeginNext &begin_next)
{
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
    constexpr int cut = 2; // rows of an odd step multiplied before the loop's end
    Fragment<G::TM, G::TN, G::lanes_down, G::lanes_across> even, odd = {};
    constexpr int own_depth = G::BK / G::slices; // steps of a tile in this warp's slice
    const int slice = G::slices == 1 ? 0 : threadIdx.x / 32 / G::warps_of_slice * own_depth;
    const float *As = &shared.As[0][slice][own.row], *Bs = &shared.Bs[0][slice][own.col];
    shared.pipeline.wait(0);
    even.load(As, Bs);
    UNROLL(1)
    for (int t = 0; t < tiles; ++t) {
        const int next = (t + 1) % G::stages;
        begin_next(t + 1, next);
        // Two steps at a time and not unrolled: otherwise nvcc interleaves the steps and loses the
        // order of the multiply-adds. The loop ends within a step, so that no step waits for values
        // that were just loaded.
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

/* sum += A @ B for one tile of C. IN_FLIGHT tiles are in flight before the first one is complete.
 * AHEAD is the prefetch distance in tiles. With AHEAD = 2, a thread arrives at tile t's barrier
 * after it has read tile t - 2 and before it starts the copies of tile t + 1. After waiting for
 * tile t, a thread may therefore overwrite tile t - 2. */
template <class G, int IN_FLIGHT = 1, int AHEAD = 1>
KERNEL_BODY void block_product(const Matrix &A, const Matrix &B, const Origin &tile,
                               const ThreadTile<G> &own, float (&sum)[G::TM][G::TN])
{
    static_assert(G::stages >= 4, "tile t + 1 takes the place of tile t - 3, or of an older one");
    static_assert(AHEAD == 1 || AHEAD == 2, "farther ahead there is no free stage");
    static_assert(IN_FLIGHT >= AHEAD && IN_FLIGHT < G::stages,
                  "the first take nobody's place, nor does the next");
    constexpr int arrived = IN_FLIGHT + 1 - AHEAD; // barriers arrived at before the main loop
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
    const int thread = threadIdx.x;
    typename G::LoaderOfA a_loader(A, tile.row, thread);
    typename G::LoaderOfB b_loader(transposed(B), tile.col, thread);

    // The first tile takes the remainder of K, so that all later tiles are whole.
    const int64_t K = A.cols;
    const int tiles = static_cast<int>((K + G::BK - 1) / G::BK);
    int depth = static_cast<int>(K - static_cast<int64_t>(tiles - 1) * G::BK);
    UNROLL(1)
    for (int t = 0; t < IN_FLIGHT; ++t) {
        if (t < tiles) {
            a_loader.load_part(shared.As[t], depth);
            b_loader.load_part(shared.Bs[t], depth);
        }
        if (t == 0) {
            shared.pipeline.begin(thread, G::threads); // while the first tile is in flight
        }
        if (t < arrived && (IN_FLIGHT == 1 || t <= tiles)) {
            shared.pipeline.commit(t);
        }
        depth = G::BK;
    }
    multiply_tiles<G>(tiles, own, sum, [&](int t, int stage) {
        if (AHEAD == 2 && t >= arrived) {
            shared.pipeline.commit(t);
        }
        const int next = t + AHEAD - 1;
        if (next >= IN_FLIGHT && next < tiles) {
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
