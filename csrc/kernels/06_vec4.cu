// idea      move four floats with each load; for that, A is transposed into shared memory.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128.
// traffic   8 / 128 bytes from global memory per multiply-add, and 8 / 8 from shared memory.
// bound by  waiting: all threads load, then all compute, and neither hides the other.
// next      prefetch: load the next tile while computing with this one.
#include "by_rows.h"
#include "quad.h"

namespace {

constexpr int BM = 128, BN = 128, BK = 8;
constexpr int TM = 8, TN = 8;
constexpr int ROWS = BM / TM, COLS = BN / TN; // the block's threads, as a rectangle
constexpr int threads = ROWS * COLS;
static_assert(BM * BK == 4 * threads && BK * BN == 4 * threads,
              "each thread loads one quad of either tile");

__global__ void __launch_bounds__(threads) vec4(const Sgemm p)
{
    __shared__ __align__(16) float As[BK][BM + quad_padding];
    __shared__ __align__(16) float Bs[BK][BN + quad_padding];

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    // This thread owns rows 4 ty ... 4 ty + 3 and those ROWS * 4 further on, columns likewise: the
    // threads of a warp read neighbouring quads of Bs.
    const int ty = thread / COLS, tx = thread % COLS;

    QuadCursor a_from = quad_cursor<BM, BK>(p.A, tile.row, thread);
    QuadCursor b_from = quad_cursor<BN, BK>(transposed(p.B), tile.col, thread);

    float sum[TM][TN] = {};
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        const int depth = clamped(left);
        const float4 a_quad = a_from.take(depth), b_quad = b_from.take(depth);
        put_quad(As, a_from, a_quad);
        put_quad(Bs, b_from, b_quad);
        __syncthreads();
        UNROLL(BK)
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; i += 4) {
                load_quad(a + i, &As[k][ty * 4 + i * ROWS]);
            }
            for (int j = 0; j < TN; j += 4) {
                load_quad(b + j, &Bs[k][tx * 4 + j * COLS]);
            }
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < TN; ++j) {
                    sum[i][j] += a[i] * b[j];
                }
            }
        }
        __syncthreads();
    }
    UNROLL(TM)
    for (int i = 0; i < TM; ++i) {
        const Results C =
            results(p.C, tile.row + ty * 4 + i / 4 * 4 * ROWS + i % 4, tile.col + tx * 4);
        UNROLL(TN / 4)
        for (int j = 0; j < TN; j += 4) {
            store_quad(p, C, 0, j * COLS, sum[i] + j);
        }
    }
}

Status launch(const Sgemm *problem, const Launch *where)
{
    return launch_tiles(vec4, BM, BN, threads, problem, where);
}

} // namespace

LAUNCHER(vec4)
{
    return launch_by_rows(problem, where, launch);
}

VARIANT(vec4, "four floats with each load, A transposed in shared memory", "06_vec4.cu",
        {BM, BN, BK}, {TM, TN}, threads,
        (BK * (BM + quad_padding) + BK * (BN + quad_padding)) * sizeof(float), {7, 5});
