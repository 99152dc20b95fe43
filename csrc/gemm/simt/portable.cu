/* The kernels where the others do not run: on GPUs without asynchronous copies, AMD's included, and
 * in simt and auto on the CPU device. They take any strides and batches. `portable` is the idea of
 * the ladder's warptile (../../ladder/08_warptile.cu explains it). */
#include "float4_loader.h"
#include "fragment.h"

namespace {

// Threads of a warp. AMD's wavefronts may have 64.
#ifdef __AMDGCN_WAVEFRONT_SIZE
constexpr int warp_threads = __AMDGCN_WAVEFRONT_SIZE;
#else
constexpr int warp_threads = 32;
#endif
constexpr int BM = 128, BN = 256, BK = 8;
constexpr int LANES = warp_threads; // threads of a warp, and its results:
constexpr int WM = 64, WN = 64 * (LANES / 32);
constexpr int TM = 8, TN = 16;
constexpr int lda = BM + padding, ldb = BN + padding; // of the shared tiles
constexpr int ROWS = WM / TM, COLS = WN / TN;         // a warp's threads, as a rectangle
constexpr int threads = (BM / WM) * (BN / WN) * LANES;
constexpr int B_LOADS = BK * BN / (4 * threads); // float4 of B's tile that each thread loads
static_assert(ROWS * COLS == LANES, "a warp's threads share its results evenly");
static_assert(BM * BK == 4 * threads && BK * BN == B_LOADS * 4 * threads,
              "each thread loads one float4 of A's tile and B_LOADS of B's");

__global__ void __launch_bounds__(threads, 1) portable(const Sgemm p)
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
    Fragment<TM, TN, ROWS, COLS> even, odd;
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

constexpr KernelSpec spec = {.symbol = "portable",
                             .block_tile = {BM, BN, BK},
                             .thread_tile = {TM, TN},
                             .threads = {threads, 1},
                             .static_bytes = 2 * BK * (lda + ldb) * sizeof(float)};

} // namespace

RUNG(portable, "the rung warptile for any strides and batches", "portable.cu", spec, {7, 5});

#ifndef __CUDACC__
namespace {

constexpr int side = 32;

/* One thread for each element of C. A processor computes a small product faster without whole
 * tiles; the bits are the same. */
__global__ void __launch_bounds__(side *side) per_element(const Sgemm p)
{
    const Origin tile = tile_origin(p.C, side, side);
    const int64_t row = tile.row + threadIdx.y, col = tile.col + threadIdx.x;
    if (!inside(p.C, row, col)) {
        return;
    }
    float sum = 0.0f;
    for (int64_t k = 0; k < p.A.cols; ++k) {
        sum = multiply_add(at(p.A, row, k), at(p.B, k, col), sum);
    }
    store(p, row, col, sum);
}

constexpr KernelSpec spec_of_element = {.symbol = "per_element",
                                        .block_tile = {side, side, 1},
                                        .thread_tile = {1, 1},
                                        .threads = {side, side}};

} // namespace

RUNG(per_element, "one thread per element, on the CPU device", "portable.cu", spec_of_element,
     {7, 5});
#endif
