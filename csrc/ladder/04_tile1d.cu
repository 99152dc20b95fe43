// idea      each thread computes a column of TM results, so one value of B serves TM multiply-adds.
// block     64 x 64 results, 512 threads, a column of 8 results each; tiles 64 x 16 and 16 x 64.
// traffic   8 / 64 bytes from global memory per multiply-add, and 4 + 4 / 8 from shared memory.
// bound by  shared-memory loads of A: one per multiply-add.
// next      tile2d: a rectangle of results, so that values of A are reused too.
#include "../kernel/kernel.h"

namespace {

constexpr int BM = TUNABLE(BM, 64), BN = TUNABLE(BN, 64), BK = TUNABLE(BK, 16);
constexpr int TM = TUNABLE(TM, 8);
constexpr int threads = BM * BN / TM;
static_assert(threads % BK == 0 && threads % BN == 0,
              "the block loads whole rows of a tile at once");
constexpr int A_ROWS = threads / BK, B_ROWS = threads / BN; // rows of a tile per load
static_assert(BM % A_ROWS == 0 && BK % B_ROWS == 0, "all threads load equally much of a tile");
constexpr int A_LOADS = BM / A_ROWS, B_LOADS = BK / B_ROWS; // per thread and tile

__global__ void __launch_bounds__(threads) tile1d(const Sgemm p)
{
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    const int ty = thread / BN * TM,
              tx = thread % BN; // this thread's results: rows ty ... of column tx
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

    float sum[TM] = {};
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
        UNROLL(4)
        for (int k = 0; k < BK; ++k) {
            const float b = Bs[k][tx];
            for (int i = 0; i < TM; ++i) {
                sum[i] = multiply_add(As[ty + i][k], b, sum[i]);
            }
        }
        __syncthreads(); // all threads have read them
    }
    UNROLL(TM)
    for (int i = 0; i < TM; ++i) {
        store(p, tile.row + ty + i, tile.col + tx, sum[i]);
    }
}

constexpr KernelSpec spec = {.symbol = "tile1d",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {TM, 1},
                             .threads = {threads, 1},
                             .static_bytes = (BM * BK + BK * BN) * sizeof(float)};

} // namespace

RUNG(tile1d, "each thread computes a column of results", "04_tile1d.cu", spec, {7, 5});
