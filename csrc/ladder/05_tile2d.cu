// idea      each thread computes a TM x TN rectangle: a loaded value serves TM or TN multiply-adds.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128.
// traffic   8 / 128 bytes from global memory per multiply-add, and 8 / 8 from shared memory.
// bound by  the number of load instructions: 16 four-byte loads for each 64 multiply-adds.
// next      vec4: move four floats with each load.
#include "03_guarded.h"

namespace {

constexpr int BM = TUNABLE(BM, 128), BN = TUNABLE(BN, 128), BK = TUNABLE(BK, 8);
constexpr int TM = TUNABLE(TM, 8), TN = TUNABLE(TN, 8);
constexpr int ROWS = BM / TM, COLS = BN / TN; // the block's threads, as a rectangle
constexpr int threads = ROWS * COLS;
constexpr int EACH = BM * BK / threads; // elements of either tile that one thread loads
static_assert(BM * BK == EACH * threads && BK * BN == EACH * threads,
              "the threads share the loads evenly");

__global__ void __launch_bounds__(threads, 2) tile2d(const Sgemm p)
{
    __shared__ float As[BM][BK]; // (BM, BK)
    __shared__ float Bs[BK][BN]; // (BK, BN)

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    // This thread owns rows ty, ty + ROWS, ... and columns tx, tx + COLS, ...: at each step the
    // threads of a warp read neighbouring words of Bs, which lie in different banks.
    const int ty = thread / COLS, tx = thread % COLS;

    ElementLoader a_loader[EACH], b_loader[EACH];
    UNROLL(EACH)
    for (int e = 0; e < EACH; ++e) {
        const int index = thread + e * threads;
        a_loader[e] = element_of_A(p.A, tile.row + index / BK, index % BK, BK);
        b_loader[e] = element_of_B(p.B, index / BN, tile.col + index % BN, BK);
    }

    float sum[TM][TN] = {};
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        const int depth = clamped(left);
        UNROLL(EACH)
        for (int e = 0; e < EACH; ++e) {
            const int index = thread + e * threads;
            As[index / BK][index % BK] = a_loader[e].load(depth);
            Bs[index / BN][index % BN] = b_loader[e].load(depth);
        }
        __syncthreads();
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
        __syncthreads();
    }
    const Results C = results(p.C, tile.row + ty, tile.col + tx);
    UNROLL(TM)
    for (int i = 0; i < TM; ++i) {
        UNROLL(TN)
        for (int j = 0; j < TN; ++j) {
            store(p, C, i * ROWS, j * COLS, sum[i][j]);
        }
    }
}

constexpr int shared_bytes = (BM * BK + BK * BN) * sizeof(float);
constexpr KernelSpec spec = {"tile2d", {BM, BN, BK}, {TM, TN}, {threads, 1}, shared_bytes, 0,
                             1,        false,        ""};

} // namespace

RUNG(tile2d, "each thread computes a rectangle of results in registers", "05_tile2d.cu", spec,
     {7, 5});
