// idea      give each warp a square of C, and each thread a larger part of it: more multiply-adds
//           per load from shared memory, and the loads of a warp share banks and rows.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 8 and
//           8 x 256, twice.
// traffic   6 / 128 bytes from global memory per multiply-add, and 6 / 8 from shared memory.
// bound by  registers: values on their way from global memory occupy as many as there are values.
// next      async: copy tiles straight to shared memory, past the registers.
#include "float4_loader.h"

namespace {

// Threads of a warp. AMD's wavefronts may have 64.
#ifdef __AMDGCN_WAVEFRONT_SIZE
constexpr int warp_threads = __AMDGCN_WAVEFRONT_SIZE;
#else
constexpr int warp_threads = 32;
#endif
constexpr int BM = TUNABLE(BM, 128), BN = TUNABLE(BN, 256), BK = TUNABLE(BK, 8);
constexpr int LANES = TUNABLE(LANES, warp_threads); // threads of a warp, and its results:
constexpr int WM = TUNABLE(WM, 64), WN = TUNABLE(WN, 64) * (LANES / 32);
constexpr int TM = TUNABLE(TM, 8), TN = TUNABLE(TN, 16);
constexpr int lda = BM + padding, ldb = BN + padding; // of the shared tiles
constexpr int ROWS = WM / TM, COLS = WN / TN;         // a warp's threads, as a rectangle
constexpr int threads = (BM / WM) * (BN / WN) * LANES;
constexpr int B_LOADS = BK * BN / (4 * threads); // float4 of B's tile that each thread loads
static_assert(ROWS * COLS == LANES, "a warp's threads share its results evenly");
static_assert(BM * BK == 4 * threads && BK * BN == B_LOADS * 4 * threads,
              "each thread loads one float4 of A's tile and B_LOADS of B's");

/* A thread's values of A and B at one step of K. */
struct Fragment {
    float a[TM], b[TN];

    __device__ __forceinline__ void load(const float *As, const float *Bs)
    {
        for (int i = 0; i < TM; i += 4) {
            read4(a + i, As + i * ROWS);
        }
        for (int j = 0; j < TN; j += 4) {
            read4(b + j, Bs + j * COLS);
        }
    }

    /* Every other row goes backwards, so that neighbouring multiply-adds always share an
     * operand, which the register file then delivers once. */
    __device__ __forceinline__ void multiply(float (&sum)[TM][TN]) const
    {
        for (int i = 0; i < TM; ++i) {
            for (int n = 0; n < TN; ++n) {
                const int j = i % 2 ? TN - 1 - n : n;
                sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
            }
        }
    }
};

__global__ void __launch_bounds__(threads, 1) warptile(const Sgemm p)
{
    __shared__ __align__(16) float As[2][BK][lda];
    __shared__ __align__(16) float Bs[2][BK][ldb];

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x, warp = thread / LANES, lane = thread % LANES;
    // This thread's results: rows ty ... ty + 3 and those 4 * ROWS further on, columns likewise.
    const int ty = warp / (BN / WN) * WM + lane / COLS * 4;
    const int tx = warp % (BN / WN) * WN + lane % COLS * 4;
    Float4Loader a_loader = float4_loader<BM, BK>(p.A, tile.row, thread);
    Float4Loader b_loader[B_LOADS];
    for (int i = 0; i < B_LOADS; ++i) {
        b_loader[i] = float4_loader<BN, BK>(transposed(p.B), tile.col, thread + i * threads);
    }

    int depth = clamped(p.A.cols);
    float4 a4 = a_loader.load(depth), b4[B_LOADS];
    for (int i = 0; i < B_LOADS; ++i) {
        b4[i] = b_loader[i].load(depth);
    }
    a_loader.store(As[0], a4);
    for (int i = 0; i < B_LOADS; ++i) {
        b_loader[i].store(Bs[0], b4[i]);
    }
    __syncthreads(); // the first tiles are complete

    float sum[TM][TN] = {};
    Fragment even, odd;
    const float *a = &As[0][0][ty], *b = &Bs[0][0][tx];
    even.load(a, b);
    int now = 0;
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        // The loads of the next tiles begin here; beyond the last ones they give zeros.
        depth = clamped(left - BK);
        a4 = a_loader.load(depth);
        for (int i = 0; i < B_LOADS; ++i) {
            b4[i] = b_loader[i].load(depth);
        }
        // Two steps at a time and not unrolled: otherwise nvcc interleaves the steps and loses the
        // order of the multiply-adds.
        UNROLL(1)
        for (int k = 0; k < BK - 2; k += 2) {
            odd.load(a += lda, b += ldb);
            even.multiply(sum);
            even.load(a += lda, b += ldb);
            odd.multiply(sum);
        }
        odd.load(a += lda, b += ldb);
        even.multiply(sum);
        now ^= 1;
        a_loader.store(As[now], a4);
        for (int i = 0; i < B_LOADS; ++i) {
            b_loader[i].store(Bs[now], b4[i]);
        }
        __syncthreads(); // the next tiles are complete, and all threads have read the present ones
        even.load(a = &As[now][0][ty], b = &Bs[now][0][tx]);
        odd.multiply(sum);
    }
    UNROLL(TM)
    for (int i = 0; i < TM; ++i) {
        const int row = ty + i / 4 * 4 * ROWS + i % 4;
        UNROLL(TN / 4)
        for (int j = 0; j < TN; j += 4) {
            store4(p, tile.row + row, tile.col + tx + j * COLS, sum[i] + j);
        }
    }
}

constexpr KernelSpec spec = {.symbol = "warptile",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {TM, TN},
                             .threads = {threads, 1},
                             .static_bytes = 2 * BK * (lda + ldb) * sizeof(float)};

} // namespace

RUNG(warptile, "each warp a square of C, each thread 8 x 16 of it", "warptile.cu", spec, {7, 5});
