// idea      load ahead, twice: the next tile from global memory while this one is multiplied, and
//           the next values of a and b from shared memory while the present ones are multiplied.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128, twice.
// traffic   8 / 128 bytes from global memory per multiply-add, and 8 / 8 from shared memory.
// bound by  issue slots; shared memory, which delivers 16 values per 64 multiply-adds of a thread,
//           is nearly as busy.
// next      warptile: a square of results for each warp, and more per thread, so that values are
//           reused more.
#include "../kernel/float4_loader.h"

namespace {

constexpr int BM = TUNABLE(BM, 128), BN = TUNABLE(BN, 128), BK = TUNABLE(BK, 8);
constexpr int TM = TUNABLE(TM, 8), TN = TUNABLE(TN, 8);
constexpr int lda = BM + padding, ldb = BN + padding; // of the shared tiles
constexpr int ROWS = BM / TM, COLS = BN / TN;         // the block's threads, as a rectangle
constexpr int threads = ROWS * COLS;
static_assert(BM * BK == 4 * threads && BK * BN == 4 * threads,
              "each thread loads one float4 of each tile");

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

__global__ void __launch_bounds__(threads, 2) prefetch(const Sgemm p)
{
    __shared__ __align__(16) float As[2][BK][lda];
    __shared__ __align__(16) float Bs[2][BK][ldb];

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    // This thread's results: rows ty ... ty + 3 and those 4 * ROWS further on, columns likewise. So
    // the threads of a warp read neighbouring float4 of Bs.
    const int ty = thread / COLS * 4, tx = thread % COLS * 4;
    Float4Loader a_loader = float4_loader<BM, BK>(p.A, tile.row, thread);
    Float4Loader b_loader = float4_loader<BN, BK>(transposed(p.B), tile.col, thread);

    a_loader.store(As[0], a_loader.load(clamped(p.A.cols)));
    b_loader.store(Bs[0], b_loader.load(clamped(p.A.cols)));
    __syncthreads(); // the first tiles are complete

    float sum[TM][TN] = {};
    Fragment even, odd;
    const float *a = &As[0][0][ty], *b = &Bs[0][0][tx];
    even.load(a, b);
    int now = 0;
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        // The loads of the next tiles begin here; beyond the last ones they give zeros.
        const int depth = clamped(left - BK);
        const float4 a4 = a_loader.load(depth), b4 = b_loader.load(depth);
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
        b_loader.store(Bs[now], b4);
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

constexpr KernelSpec spec = {.symbol = "prefetch",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {TM, TN},
                             .threads = {threads, 1},
                             .static_bytes = 2 * BK * (lda + ldb) * sizeof(float)};

} // namespace

RUNG(prefetch, "the next tile loads while this one is computed", "07_prefetch.cu", spec, {7, 5});
