// idea      each thread computes a column of TM results, so one value of B serves TM multiply-adds.
// block     64 x 64 results, 512 threads, a column of 8 results each; tiles 64 x 16 and 16 x 64.
// traffic   8 / 64 bytes from global memory per multiply-add, and 4 + 4 / 8 from shared memory.
// bound by  shared-memory loads of A: one value per multiply-add.
// next      tile2d: a rectangle of results, so that values of A are reused too.
// C = alpha * A @ B + beta * C. The matrices are row-major, of any size: A is M x K, B is K x N.
// Launch: ((N - 1) / BN + 1) * ((M - 1) / BM + 1) blocks of THREADS threads.
constexpr int BM = 64, BN = 64, BK = 16, TM = 8;
constexpr int THREADS = BM * BN / TM;
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN; // rows of a tile that all load at once
static_assert(THREADS % BK == 0 && THREADS % BN == 0 && BM % A_ROWS == 0 && BK % B_ROWS == 0,
              "the block loads whole rows of a tile");

__global__ void __launch_bounds__(THREADS)
    tile1d(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    __shared__ float As[BM][BK], Bs[BK][BN];
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
    // Its results: rows ty to ty + TM - 1 of column tx of the block. They stay in registers.
    const int ty = thread / BN * TM, tx = thread % BN;
    float sum[TM] = {};
    for (int left = K; left > 0; left -= BK) { // from these tiles to the end of K
        for (int i = 0; i < BM; i += A_ROWS) {
            const bool inside = a_row + i < rows && a_k < left;
            As[a_row + i][a_k] = inside ? a_from[(size_t)i * K] : 0.0f;
        }
        for (int i = 0; i < BK; i += B_ROWS) {
            const bool inside = b_col < cols && b_k + i < left;
            Bs[b_k + i][b_col] = inside ? b_from[(size_t)i * N] : 0.0f;
        }
        a_from += BK, b_from += (size_t)BK * N;
        __syncthreads(); // the tiles are complete
#pragma unroll 4 // four steps of K: nvcc then loads four neighbours of A with one instruction
        for (int k = 0; k < BK; ++k) {
            const float b = Bs[k][tx];
            for (int i = 0; i < TM; ++i) {
                sum[i] += As[ty + i][k] * b;
            }
        }
        __syncthreads(); // all threads have read them
    }
    for (int i = 0; i < TM; ++i) {
        if (ty + i < rows && tx < cols) {
            float *c = C + (size_t)(ty + i) * N + tx;
            *c = beta == 0.0f ? alpha * sum[i] : fmaf(beta, *c, alpha * sum[i]);
        }
    }
}
