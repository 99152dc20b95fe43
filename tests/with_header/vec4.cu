// idea      move four floats with each load and store; for that, A is transposed in shared memory.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128.
// traffic   8 / 128 bytes from global memory per multiply-add, and 8 / 8 from shared memory.
// bound by  waiting: all threads load, then all compute, and neither hides the other.
// next      prefetch: load the next tile while computing the present one.
#include "float4_loader.h"

namespace {

constexpr int BM = TUNABLE(BM, 128), BN = TUNABLE(BN, 128), BK = TUNABLE(BK, 8);
constexpr int TM = TUNABLE(TM, 8), TN = TUNABLE(TN, 8);
constexpr int ROWS = BM / TM, COLS = BN / TN; // the block's threads, as a rectangle
constexpr int threads = ROWS * COLS;
static_assert(BM * BK == 4 * threads && BK * BN == 4 * threads,
              "each thread loads one float4 of each tile");

__global__ void __launch_bounds__(threads) vec4(const Sgemm p)
{
    __shared__ __align__(16) float As[BK][BM + padding];
    __shared__ __align__(16) float Bs[BK][BN + padding];

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    // This thread's results: rows ty ... ty + 3 and those 4 * ROWS further on, columns likewise. So
    // the threads of a warp read neighbouring float4 of Bs.
    const int ty = thread / COLS * 4, tx = thread % COLS * 4;
    Float4Loader a_loader = float4_loader<BM, BK>(p.A, tile.row, thread);
    Float4Loader b_loader = float4_loader<BN, BK>(transposed(p.B), tile.col, thread);

    float sum[TM][TN] = {};
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        const int depth = clamped(left);
        const float4 a4 = a_loader.load(depth), b4 = b_loader.load(depth);
        a_loader.store(As, a4);
        b_loader.store(Bs, b4);
        __syncthreads(); // the tiles are complete
        UNROLL(BK)
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; i += 4) {
                read4(a + i, &As[k][ty + i * ROWS]);
            }
            for (int j = 0; j < TN; j += 4) {
                read4(b + j, &Bs[k][tx + j * COLS]);
            }
            // In this order of the loops nvcc finds registers in different banks for a, b and sum.
            for (int j = 0; j < TN; ++j) {
                for (int i = 0; i < TM; ++i) {
                    sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
                }
            }
        }
        __syncthreads(); // all threads have read them
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

constexpr KernelSpec spec = {.symbol = "vec4",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {TM, TN},
                             .threads = {threads, 1},
                             .static_bytes = BK * (BM + BN + 2 * padding) * sizeof(float)};

} // namespace

RUNG(vec4, "four floats with each load, A transposed in shared memory", "vec4.cu", spec, {7, 5});
