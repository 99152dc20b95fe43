// idea      give each warp a square of C, and each thread a larger part of that: more multiply-adds
//           for each load from shared memory, and loads that share banks and rows within the warp.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 8 and
//           8 x 256, twice.
// traffic   6 / 128 bytes from global memory per multiply-add, and 6 / 8 from shared memory.
// bound by  registers: what is on its way from global memory takes as many as it has values.
// next      async: copy tiles straight to shared memory, past the registers.
#include "07_prefetch.cu"

namespace {

constexpr int BM = TUNABLE(BM, 128), BN = TUNABLE(BN, 256), BK = TUNABLE(BK, 8);
constexpr int LANES = TUNABLE(LANES, warp_threads);                      // of a warp,
constexpr int WM = TUNABLE(WM, 64), WN = TUNABLE(WN, 64) * (LANES / 32); // and its results
constexpr int TM = TUNABLE(TM, 8), TN = TUNABLE(TN, 16);
constexpr int lda = BM + quad_padding, ldb = BN + quad_padding; // of the shared tiles
constexpr int ROWS = WM / TM, COLS = WN / TN; // the warp's threads, as a rectangle
constexpr int threads = (BM / WM) * (BN / WN) * ROWS * COLS;
constexpr int B_QUADS = BK * BN / (4 * threads); // of B's tile that each thread loads
static_assert(ROWS * COLS == LANES, "a warp's threads share its results evenly");
static_assert(BM * BK == 4 * threads && BK * BN == B_QUADS * 4 * threads,
              "each thread loads one quad of A's tile, and some of B's");

__global__ void __launch_bounds__(threads, 1) warptile(const Sgemm p)
{
    __shared__ __align__(16) float As[2][BK][lda]; // (2, BK, BM)
    __shared__ __align__(16) float Bs[2][BK][ldb]; // (2, BK, BN)

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x, warp = thread / LANES, lane = thread % LANES;
    // This thread owns rows row ... row + 3 and those ROWS * 4 further on, columns likewise.
    const int row = warp / (BN / WN) * WM + lane / COLS * 4;
    const int col = warp % (BN / WN) * WN + lane % COLS * 4;

    QuadLoader a_loader = quad_loader<BM, BK>(p.A, tile.row, thread);
    QuadLoader b_loader[B_QUADS];
    for (int q = 0; q < B_QUADS; ++q) {
        b_loader[q] = quad_loader<BN, BK>(transposed(p.B), tile.col, thread + q * threads);
    }

    float4 a_next = a_loader.load(clamped(p.A.cols)), b_next[B_QUADS];
    for (int q = 0; q < B_QUADS; ++q) {
        b_next[q] = b_loader[q].load(clamped(p.A.cols));
    }
    a_loader.store(As[0], a_next);
    for (int q = 0; q < B_QUADS; ++q) {
        b_loader[q].store(Bs[0], b_next[q]);
    }
    __syncthreads();

    float sum[TM][TN] = {};
    Fragments<TM, TN, ROWS, COLS> even, odd;
    const float *from_As = &As[0][0][row], *from_Bs = &Bs[0][0][col];
    even.load(from_As, from_Bs);
    int now = 0;
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        // Beyond the last tile these load nothing but zeros. They are stored when this tile is
        // done.
        const int depth = clamped(left - BK);
        a_next = a_loader.load(depth);
        for (int q = 0; q < B_QUADS; ++q) {
            b_next[q] = b_loader[q].load(depth);
        }
        // Two steps at a time, in a loop that stays a loop: written out, the compiler would mix the
        // steps' multiplications, and lose the order in which they share operands.
        UNROLL(1)
        for (int k = 0; k < BK - 2; k += 2) {
            odd.load(from_As + lda, from_Bs + ldb);
            even.multiply(sum);
            from_As += 2 * lda;
            from_Bs += 2 * ldb;
            even.load(from_As, from_Bs);
            odd.multiply(sum);
        }
        odd.load(from_As + lda, from_Bs + ldb);
        even.multiply(sum);
        now ^= 1;
        a_loader.store(As[now], a_next);
        for (int q = 0; q < B_QUADS; ++q) {
            b_loader[q].store(Bs[now], b_next[q]);
        }
        __syncthreads();
        from_As = &As[now][0][row];
        from_Bs = &Bs[now][0][col];
        even.load(from_As, from_Bs);
        odd.multiply(sum);
    }
    UNROLL(TM)
    for (int i = 0; i < TM; ++i) {
        const Results C = results(p.C, tile.row + row + i / 4 * 4 * ROWS + i % 4, tile.col + col);
        UNROLL(TN / 4)
        for (int j = 0; j < TN; j += 4) {
            store_quad(p, C, 0, j * COLS, sum[i] + j);
        }
    }
}

constexpr int shared_bytes = 2 * BK * (lda + ldb) * sizeof(float);
constexpr KernelSpec spec = {"warptile", {BM, BN, BK}, {TM, TN}, {threads, 1}, shared_bytes, 0,
                             1,          false,        ""};

} // namespace

RUNG(warptile, "each warp a square of C, each thread 8 x 16 of it", "08_warptile.cu", spec, {7, 5});
