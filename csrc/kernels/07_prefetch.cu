// idea      load the next tile while computing with this one: two buffers in shared memory, and the
//           next step's values of a and b in registers.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128, twice.
// traffic   8 / 128 bytes from global memory per multiply-add, and 8 / 8 from shared memory.
// bound by  shared memory, which delivers 16 values for 64 multiply-adds of a thread, and issue
//           slots.
// next      warptile: a larger square for each warp and thread, so that each value serves more often.
#include "by_rows.h"
#include "quad.h"

namespace {

constexpr int BM = 128, BN = 128, BK = 8;
constexpr int TM = 8, TN = 8;
constexpr int lda = BM + quad_padding, ldb = BN + quad_padding; // of the shared tiles
constexpr int ROWS = BM / TM, COLS = BN / TN; // the block's threads, as a rectangle
constexpr int threads = ROWS * COLS;
static_assert(BM * BK == 4 * threads && BK * BN == 4 * threads,
              "each thread loads one quad of either tile");

__global__ void __launch_bounds__(threads, 2) prefetch(const Sgemm p)
{
    __shared__ __align__(16) float As[2][BK][lda];
    __shared__ __align__(16) float Bs[2][BK][ldb];

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    // This thread owns rows 4 ty ... 4 ty + 3 and those ROWS * 4 further on, columns likewise: the
    // threads of a warp read neighbouring quads of Bs.
    const int ty = thread / COLS, tx = thread % COLS;

    QuadCursor a_from = quad_cursor<BM, BK>(p.A, tile.row, thread);
    QuadCursor b_from = quad_cursor<BN, BK>(transposed(p.B), tile.col, thread);

    const float4 a_quad = a_from.take(clamped(p.A.cols)), b_quad = b_from.take(clamped(p.A.cols));
    put_quad(As[0], a_from, a_quad);
    put_quad(Bs[0], b_from, b_quad);
    __syncthreads();

    float sum[TM][TN] = {};
    Fragments<TM, TN, ROWS, COLS> even, odd;
    const float *from_As = &As[0][0][ty * 4], *from_Bs = &Bs[0][0][tx * 4];
    even.load(from_As, from_Bs);
    int now = 0;
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        // Beyond the last tile these fetch nothing but zeros.
        const int depth = clamped(left - BK);
        const float4 a_next = a_from.take(depth), b_next = b_from.take(depth);
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
        put_quad(As[now], a_from, a_next);
        put_quad(Bs[now], b_from, b_next);
        __syncthreads();
        from_As = &As[now][0][ty * 4];
        from_Bs = &Bs[now][0][tx * 4];
        even.load(from_As, from_Bs);
        odd.multiply(sum);
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
    return launch_tiles(prefetch, BM, BN, threads, problem, where);
}

} // namespace

LAUNCHER(prefetch)
{
    return launch_by_rows(problem, where, launch);
}

VARIANT(prefetch, "the next tile loads while this one is computed", "07_prefetch.cu", {BM, BN, BK},
        {TM, TN}, threads, 2 * BK * (lda + ldb) * sizeof(float), {7, 5});
