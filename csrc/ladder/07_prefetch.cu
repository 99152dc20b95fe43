// idea      work ahead, three times over: the next tile loads into a second buffer while this one
//           is multiplied, the next step's values of a and b load into registers while this step's
//           are, and the multiply-adds come in an order in which neighbours share an operand.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128, twice.
// traffic   8 / 128 bytes from global memory per multiply-add, and 8 / 8 from shared memory.
// bound by  issue slots; shared memory, which delivers 16 values for 64 multiply-adds of a thread, is
//           nearly as busy.
// next      warptile: a larger square for each warp and thread, so that each value serves more
//           often.
#include "06_vec4.cu"

/* The values that a thread multiplies at one step of K: quads of a and of b, ROWS and COLS quads
 * apart. There are two: one loads while the other is multiplied. */
template <int TM, int TN, int ROWS, int COLS> struct Fragments {
    float a[TM], b[TN];

    /* From this thread's first quads in the shared tiles. */
    __device__ __forceinline__ void load(const float *As, const float *Bs)
    {
        for (int i = 0; i < TM; i += 4) {
            read_quad(a + i, As + i * ROWS);
        }
        for (int j = 0; j < TN; j += 4) {
            read_quad(b + j, Bs + j * COLS);
        }
    }

    /* Adds the products of rows FIRST to LAST - 1, in the order that is the third idea. Every other
     * row goes backwards: each multiplication then shares an operand with the one before, which the
     * register file need not deliver again. */
    template <int FIRST = 0, int LAST = TM>
    __device__ __forceinline__ void multiply(float (&sum)[TM][TN]) const
    {
        for (int i = FIRST; i < LAST; ++i) {
            for (int n = 0; n < TN; ++n) {
                const int j = i % 2 ? TN - 1 - n : n;
                sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
            }
        }
    }
};

#if THIS_RUNG
namespace {

constexpr int BM = TUNABLE(BM, 128), BN = TUNABLE(BN, 128), BK = TUNABLE(BK, 8);
constexpr int TM = TUNABLE(TM, 8), TN = TUNABLE(TN, 8);
constexpr int lda = BM + quad_padding, ldb = BN + quad_padding; // of the shared tiles
constexpr int ROWS = BM / TM, COLS = BN / TN; // the block's threads, as a rectangle
constexpr int threads = ROWS * COLS;
static_assert(BM * BK == 4 * threads && BK * BN == 4 * threads,
              "each thread loads one quad of either tile");

// For how many blocks a multiprocessor shall have room. On these of AMD's GPUs two blocks leave a
// thread 128 registers, seven too few.
#if defined(__gfx900__) || defined(__gfx906__)
constexpr int blocks_at_once = 1;
#else
constexpr int blocks_at_once = 2;
#endif

__global__ void __launch_bounds__(threads, blocks_at_once) prefetch(const Sgemm p)
{
    __shared__ __align__(16) float As[2][BK][lda]; // (2, BK, BM)
    __shared__ __align__(16) float Bs[2][BK][ldb]; // (2, BK, BN)

    const Origin tile = tile_origin(p.C, BM, BN);
    const int thread = threadIdx.x;
    // This thread owns rows 4 ty ... 4 ty + 3 and those ROWS * 4 further on, columns likewise: the
    // threads of a warp read neighbouring quads of Bs.
    const int ty = thread / COLS, tx = thread % COLS;

    QuadLoader a_loader = quad_loader<BM, BK>(p.A, tile.row, thread);
    QuadLoader b_loader = quad_loader<BN, BK>(transposed(p.B), tile.col, thread);

    const float4 a_quad = a_loader.load(clamped(p.A.cols)),
                 b_quad = b_loader.load(clamped(p.A.cols));
    a_loader.store(As[0], a_quad);
    b_loader.store(Bs[0], b_quad);
    __syncthreads();

    float sum[TM][TN] = {};
    Fragments<TM, TN, ROWS, COLS> even, odd;
    const float *from_As = &As[0][0][ty * 4], *from_Bs = &Bs[0][0][tx * 4];
    even.load(from_As, from_Bs);
    int now = 0;
    for (int64_t left = p.A.cols; left > 0; left -= BK) {
        // Beyond the last tile these load nothing but zeros. They are stored when this tile is
        // done.
        const int depth = clamped(left - BK);
        const float4 a_next = a_loader.load(depth), b_next = b_loader.load(depth);
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
        a_loader.store(As[now], a_next);
        b_loader.store(Bs[now], b_next);
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

constexpr int shared_bytes = 2 * BK * (lda + ldb) * sizeof(float);
constexpr KernelSpec spec = {"prefetch", {BM, BN, BK}, {TM, TN}, {threads, 1}, shared_bytes, 0,
                             1,          false,        ""};

} // namespace

RUNG(prefetch, "the next tile loads while this one is computed", "07_prefetch.cu", spec, {7, 5});
#endif
