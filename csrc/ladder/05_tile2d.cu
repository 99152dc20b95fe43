// idea      each thread computes a TM x TN rectangle: a loaded value serves TM or TN multiply-adds.
//           A's tile is transposed, so that the next rung can read four values of it at once.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128.
// traffic   4 / BN + 4 / BM bytes from global memory per multiply-add, and 4 / TN + 4 / TM from
//           shared memory.
// bound by  the number of load instructions, from global and from shared memory.
// next      vec4: move four floats with each load.
// C = alpha * A @ B + beta * C. The matrices are row-major, of any size: A is M x K, B is K x N.
// Launch: ((N - 1) / BN + 1) * ((M - 1) / BM + 1) blocks of THREADS threads.
constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;
constexpr int ROWS = BM / TM, COLS = BN / TN, THREADS = ROWS * COLS; // the threads: a rectangle
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN; // rows of a tile that all load at once
constexpr int PAD = 4; // row k of As begins in bank 4 * k: a warp stores to 32 different banks
static_assert(THREADS % BK == 0 && THREADS % BN == 0 && BM % A_ROWS == 0 && BK % B_ROWS == 0,
              "the block loads whole rows of a tile");

struct Step { // a thread's values of A and B at one step of K
    float a[TM], b[TN];

    __device__ void read(const float *As, const float *Bs)
    {
        for (int i = 0; i < TM; ++i) {
            a[i] = As[i];
        }
        for (int j = 0; j < TN; ++j) {
            b[j] = Bs[j * COLS];
        }
    }

    __device__ void multiply(float (&sum)[TM][TN]) const
    {
        for (int j = 0; j < TN; ++j) { // by columns: a[0] to a[TM - 1] in turn, b[j] stays
            for (int i = 0; i < TM; ++i) {
                sum[i][j] += a[i] * b[j];
            }
        }
    }
};

__global__ void __launch_bounds__(THREADS, 2) // 2 blocks at a time: at most 128 registers
    tile2d(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    // As is transposed: the rows of A that a thread needs at one step of K are neighbours in it.
    __shared__ __align__(16) float As[BK][BM + PAD], Bs[BK][BN];
    const unsigned blocks_in_row = (N - 1) / BN + 1;
    const int row0 = blockIdx.x / blocks_in_row * BM, col0 = blockIdx.x % blocks_in_row * BN;
    const int rows = M - row0, cols = N - col0; // of C, from the block's first element on:
    C += (size_t)row0 * N + col0;
    // What this thread loads: elements a_row, a_row + A_ROWS, ... of column a_k of A's tile, and
    // b_k, b_k + B_ROWS, ... of column b_col of B's.
    const int thread = threadIdx.x;
    const int a_row = thread / BK, a_k = thread % BK, b_k = thread / BN, b_col = thread % BN;
    const float *a_from = A + (size_t)(row0 + a_row) * K + a_k;
    const float *b_from = B + (size_t)b_k * N + col0 + b_col;
    // Its results: rows ty to ty + TM - 1, which half a warp shares, and columns tx, tx + COLS, and
    // so on. So a warp reads neighbouring words of Bs, which are in different banks.
    const int ty = thread / COLS * TM, tx = thread % COLS;
    float sum[TM][TN] = {};
    for (int left = K; left > 0; left -= BK) { // from these tiles to the end of K
        for (int i = 0; i < BM; i += A_ROWS) {
            const bool inside = a_row + i < rows && a_k < left;
            As[a_k][a_row + i] = inside ? a_from[(size_t)i * K] : 0.0f;
        }
        for (int i = 0; i < BK; i += B_ROWS) {
            const bool inside = b_col < cols && b_k + i < left;
            Bs[b_k + i][b_col] = inside ? b_from[(size_t)i * N] : 0.0f;
        }
        a_from += BK, b_from += (size_t)BK * N;
        __syncthreads(); // the tiles are complete
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            Step step;
            step.read(&As[k][ty], &Bs[k][tx]);
            step.multiply(sum);
        }
        __syncthreads(); // all threads have read them
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        float *c = C + (size_t)(ty + i) * N + tx;
        for (int j = 0; j < TN; ++j, c += COLS) {
            if (ty + i < rows && tx + j * COLS < cols) {
                *c = beta == 0.0f ? alpha * sum[i][j] : fmaf(beta, *c, alpha * sum[i][j]);
            }
        }
    }
}
