// idea      each thread computes a column of TM results, so one value of B serves TM multiply-adds.
// block     64 x 64 results, 512 threads, a column of 8 results each; tiles 64 x 16 and 16 x 64.
// traffic   8 / 64 bytes from global memory per multiply-add, and 4 + 4 / 8 from shared memory.
// bound by  shared-memory loads of A: one for each multiply-add.
// next      tile2d: a rectangle of results, so that values of A are reused as well.
#include "03_guarded.h"

namespace {

constexpr int BM = TUNABLE(BM, 64), BN = TUNABLE(BN, 64), BK = TUNABLE(BK, 16);
constexpr int TM = TUNABLE(TM, 8);
constexpr int threads = BM * BN / TM;
constexpr int EACH = BM * BK / threads; // elements of either tile that one thread loads
static_assert(BM * BK == EACH * threads && BK * BN == EACH * threads,
              "the threads share the loads evenly");

__global__ void __launch_bounds__(threads) tile1d(const Sgemm p)
{
    __shared__ float As[BM][BK]; // (BM, BK)
    __shared__ float Bs[BK][BN]; // (BK, BN)

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    const int ty = thread / BN, tx = thread % BN; // this thread owns rows ty * TM ... of column tx

    ElementLoader a_loader[EACH], b_loader[EACH];
    UNROLL(EACH)
    for (int e = 0; e < EACH; ++e) {
        const int index = thread + e * threads;
        a_loader[e] = element_of_A(p.A, tile.row + index / BK, index % BK, BK);
        b_loader[e] = element_of_B(p.B, index / BN, tile.col + index % BN, BK);
    }

    float sum[TM] = {};
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        const int depth = clamped(left);
        UNROLL(EACH)
        for (int e = 0; e < EACH; ++e) {
            const int index = thread + e * threads;
            As[index / BK][index % BK] = a_loader[e].load(depth);
            Bs[index / BN][index % BN] = b_loader[e].load(depth);
        }
        __syncthreads();
        UNROLL(4)
        for (int k = 0; k < BK; ++k) {
            const float b = Bs[k][tx];
            for (int i = 0; i < TM; ++i) {
                sum[i] = multiply_add(As[ty * TM + i][k], b, sum[i]);
            }
        }
        __syncthreads();
    }
    const Results C = results(p.C, tile.row + ty * TM, tile.col + tx);
    UNROLL(TM)
    for (int i = 0; i < TM; ++i) {
        store(p, C, i, 0, sum[i]);
    }
}

constexpr int shared_bytes = (BM * BK + BK * BN) * sizeof(float);
constexpr KernelSpec spec = {"tile1d", {BM, BN, BK}, {TM, 1}, {threads, 1}, shared_bytes, 0,
                             1,        false,        ""};

} // namespace

RUNG(tile1d, "each thread computes a column of results", "04_tile1d.cu", spec, {7, 5});
