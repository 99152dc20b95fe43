// idea      each thread computes a TM x TN rectangle: a loaded value serves TM or TN multiply-adds.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128.
// traffic   8 / 128 bytes from global memory per multiply-add, and 8 / 8 from shared memory.
// bound by  the number of load instructions: 16 four-byte loads for each 64 multiply-adds.
// next      vec4: move four floats with each load.
#include "kernel.h"

namespace {

constexpr int BM = TUNABLE(BM, 128), BN = TUNABLE(BN, 128), BK = TUNABLE(BK, 8);
constexpr int TM = TUNABLE(TM, 8), TN = TUNABLE(TN, 8);
constexpr int ROWS = BM / TM, COLS = BN / TN; // the block's threads, as a rectangle
constexpr int threads = ROWS * COLS;
static_assert(threads % BK == 0 && threads % BN == 0,
              "the block loads whole rows of a tile at once");
constexpr int A_ROWS = threads / BK, B_ROWS = threads / BN; // rows of a tile per load
static_assert(BM % A_ROWS == 0 && BK % B_ROWS == 0, "all threads load equally much of a tile");
constexpr int A_LOADS = BM / A_ROWS, B_LOADS = BK / B_ROWS; // per thread and tile

__global__ void __launch_bounds__(threads, 2) tile2d(const Sgemm p)
{
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    // This thread's results: rows ty, ty + ROWS, ... and columns tx, tx + COLS, .... So the threads
    // of a warp read neighbouring words of Bs, in different banks.
    const int ty = thread / COLS, tx = thread % COLS;
    // This thread's elements: A_LOADS in a column of A's tile, B_LOADS in one of B's. Beyond the
    // last row of A or column of B it loads the last one again, which is part of no result.
    const int a_row = thread / BK, a_k = thread % BK, b_k = thread / BN, b_col = thread % BN;
    const float *a_from[A_LOADS], *b_from[B_LOADS];
    for (int i = 0; i < A_LOADS; ++i) {
        a_from[i] = address(p.A, at_most(tile.row + a_row + i * A_ROWS, p.A.rows - 1), a_k);
    }
    for (int i = 0; i < B_LOADS; ++i) {
        b_from[i] = address(p.B, b_k + i * B_ROWS, at_most(tile.col + b_col, p.B.cols - 1));
    }

    float sum[TM][TN] = {};
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        const int depth = clamped(left);
        UNROLL(A_LOADS)
        for (int i = 0; i < A_LOADS; ++i) {
            As[a_row + i * A_ROWS][a_k] = a_k < depth ? *a_from[i] : 0.0f;
            a_from[i] += BK * p.A.col_stride;
        }
        UNROLL(B_LOADS)
        for (int i = 0; i < B_LOADS; ++i) {
            Bs[b_k + i * B_ROWS][b_col] = b_k + i * B_ROWS < depth ? *b_from[i] : 0.0f;
            b_from[i] += BK * p.B.row_stride;
        }
        __syncthreads(); // the tiles are complete
        UNROLL(2)
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; ++i) {
                a[i] = As[ty + i * ROWS][k];
            }
            for (int j = 0; j < TN; ++j) {
                b[j] = Bs[k][tx + j * COLS];
            }
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < TN; ++j) {
                    sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
                }
            }
        }
        __syncthreads(); // all threads have read them
    }
    UNROLL(TM)
    for (int i = 0; i < TM; ++i) {
        UNROLL(TN)
        for (int j = 0; j < TN; ++j) {
            store(p, tile.row + ty + i * ROWS, tile.col + tx + j * COLS, sum[i][j]);
        }
    }
}

constexpr KernelSpec spec = {.symbol = "tile2d",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {TM, TN},
                             .threads = {threads, 1},
                             .static_bytes = (BM * BK + BK * BN) * sizeof(float)};

} // namespace

RUNG(tile2d, "each thread computes a rectangle of results in registers", "tile2d.cu", spec, {7, 5});
