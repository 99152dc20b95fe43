// idea      move four floats with each load; for that, A is transposed into shared memory.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128.
// traffic   8 / 128 bytes from global memory per multiply-add, and 8 / 8 from shared memory.
// bound by  waiting: all threads load, then all compute, and neither hides the other.
// next      prefetch: load the next tile while computing with this one.
#include "06_quad.h"

/* One quad of each of an operand's tiles, from one tile to the next along K: four neighbours in
 * memory. */
struct QuadLoader {
    const float *here;
    int64_t step;     /* to the next tile */
    int line, k;      /* of the quad's first element within the tile */
    bool along_depth; /* whether its elements are neighbours along the depth, or across the lines */
    int count;        /* elements before the operand's last line: 0 to 4 */
    int vector; /* the count that one load can take: 4 if it is aligned, else more than there is */

    /* The quad, by one load where it is whole and aligned, with zeros beyond the edges; then goes
     * on to the next tile. `depth` is what is left of K from this tile's beginning on. */
    __device__ __forceinline__ float4 load(int depth)
    {
        const int deep = along_depth ? depth - k : k < depth ? 4 : 0;
        const int left = deep < count ? deep : count;
        const float *const from = here;
        here += step;
        if (left >= vector) {
            return *reinterpret_cast<const float4 *>(from);
        }
        return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f,
                           left > 2 ? from[2] : 0.0f, left > 3 ? from[3] : 0.0f);
    }

    /* Stores the quad in a shared tile: transposed, element by element, where it lies along the
     * depth, so that whichever way it lay four neighbouring lines are neighbours in the tile. */
    template <int DEPTH, int ROW>
    __device__ __forceinline__ void store(float (&tile)[DEPTH][ROW], float4 quad) const
    {
        if (along_depth) {
            tile[k + 0][line] = quad.x;
            tile[k + 1][line] = quad.y;
            tile[k + 2][line] = quad.z;
            tile[k + 3][line] = quad.w;
        } else {
            *reinterpret_cast<float4 *>(&tile[k][line]) = quad;
        }
    }
};

/* The loader of a thread's quad of each tile of LINES x DEPTH, whose first line is first_line. A
 * line is a row of A or a column of B: X is A, or B with rows and columns exchanged. */
template <int LINES, int DEPTH>
static __device__ __forceinline__ QuadLoader quad_loader(const Matrix &X, int64_t first_line,
                                                         int thread)
{
    static_assert(LINES % 4 == 0 && DEPTH % 4 == 0,
                  "a tile is made of whole quads in both directions");
    QuadLoader q;
    q.along_depth = X.col_stride == 1;
    q.line = q.along_depth ? thread / (DEPTH / 4) : thread % (LINES / 4) * 4;
    q.k = q.along_depth ? thread % (DEPTH / 4) * 4 : thread / (LINES / 4);
    q.here = address(X, first_line + q.line, q.k);
    q.step = DEPTH * X.col_stride;
    const int64_t lines_left = X.rows - first_line - q.line;
    q.count = lines_left <= 0                    ? 0
              : q.along_depth || lines_left >= 4 ? 4
                                                 : static_cast<int>(lines_left);
    q.vector =
        is_aligned(q.here) ? 4 : 5; // and so are those of all tiles: DEPTH is a multiple of 4
    return q;
}

#if THIS_RUNG
namespace {

constexpr int BM = TUNABLE(BM, 128), BN = TUNABLE(BN, 128), BK = TUNABLE(BK, 8);
constexpr int TM = TUNABLE(TM, 8), TN = TUNABLE(TN, 8);
constexpr int ROWS = BM / TM, COLS = BN / TN; // the block's threads, as a rectangle
constexpr int threads = ROWS * COLS;
static_assert(BM * BK == 4 * threads && BK * BN == 4 * threads,
              "each thread loads one quad of either tile");

__global__ void __launch_bounds__(threads) vec4(const Sgemm p)
{
    __shared__ __align__(16) float As[BK][BM + quad_padding]; // (BK, BM)
    __shared__ __align__(16) float Bs[BK][BN + quad_padding]; // (BK, BN)

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    // This thread owns rows 4 ty ... 4 ty + 3 and those ROWS * 4 further on, columns likewise: the
    // threads of a warp read neighbouring quads of Bs.
    const int ty = thread / COLS, tx = thread % COLS;

    QuadLoader a_loader = quad_loader<BM, BK>(p.A, tile.row, thread);
    QuadLoader b_loader = quad_loader<BN, BK>(transposed(p.B), tile.col, thread);

    float sum[TM][TN] = {};
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        const int depth = clamped(left);
        const float4 a_quad = a_loader.load(depth), b_quad = b_loader.load(depth);
        a_loader.store(As, a_quad);
        b_loader.store(Bs, b_quad);
        __syncthreads();
        UNROLL(BK)
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; i += 4) {
                read_quad(a + i, &As[k][ty * 4 + i * ROWS]);
            }
            for (int j = 0; j < TN; j += 4) {
                read_quad(b + j, &Bs[k][tx * 4 + j * COLS]);
            }
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < TN; ++j) {
                    sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
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

constexpr int shared_bytes = (BK * (BM + quad_padding) + BK * (BN + quad_padding)) * sizeof(float);
constexpr KernelSpec spec = {"vec4", {BM, BN, BK}, {TM, TN}, {threads, 1}, shared_bytes, 0,
                             1,      false,        ""};

} // namespace

RUNG(vec4, "four floats with each load, A transposed in shared memory", "06_vec4.cu", spec, {7, 5});
#endif
