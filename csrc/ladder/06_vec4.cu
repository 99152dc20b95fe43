// idea      move four floats with each load and store.
// block     128 x 128 results, 256 threads, 8 x 8 results each; tiles 128 x 8 and 8 x 128.
// traffic   8 / 128 bytes from global memory per multiply-add, and 8 / 8 from shared memory.
// bound by  waiting: a block's threads all load, then all compute, and neither hides the other.
// next      prefetch: load the next tile while computing the present one.
// C = alpha * A @ B + beta * C. The matrices are row-major, of any size: A is M x K, B is K x N.
// Launch: ((N - 1) / BN + 1) * ((M - 1) / BM + 1) blocks of THREADS threads.
constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;
constexpr int ROWS = BM / TM, COLS = BN / TN, THREADS = ROWS * COLS; // the threads: a rectangle
constexpr int PAD = 4; // rows k and k + 4 of As begin 16 banks apart, as a warp's stores need
static_assert(BM * BK == 4 * THREADS && BK * BN == 4 * THREADS, "each thread loads 2 float4");

// Loads four neighbours. `count` elements of the row are left: zeros replace those beyond its end.
__device__ float4 load4(const float *from, int count)
{
    return count >= 4 && (size_t)from % 16 == 0
               ? *(const float4 *)from
               : make_float4(count > 0 ? from[0] : 0.0f, count > 1 ? from[1] : 0.0f,
                             count > 2 ? from[2] : 0.0f, count > 3 ? from[3] : 0.0f);
}

// C = alpha * sum + beta * C for four neighbours, of which `count` are inside C.
__device__ void store4(float *to, int count, float alpha, const float *sum, float beta)
{
    const float4 c4 = load4(to, beta == 0.0f ? 0 : count);
    float c[4] = {c4.x, c4.y, c4.z, c4.w};
    const bool wide = count >= 4 && (size_t)to % 16 == 0;
    for (int i = 0; i < 4; ++i) {
        c[i] = beta == 0.0f ? alpha * sum[i] : fmaf(beta, c[i], alpha * sum[i]);
        if (!wide && i < count) {
            to[i] = c[i];
        }
    }
    if (wide) {
        *(float4 *)to = make_float4(c[0], c[1], c[2], c[3]);
    }
}

struct Step { // a thread's values of A and B at one step of K
    alignas(16) float a[TM], b[TN];

    __device__ void read(const float *As, const float *Bs)
    {
        for (int i = 0; i < TM; i += 4) {
            *(float4 *)&a[i] = *(const float4 *)&As[i * ROWS];
        }
        for (int j = 0; j < TN; j += 4) {
            *(float4 *)&b[j] = *(const float4 *)&Bs[j * COLS];
        }
    }

    __device__ void multiply(float (&sum)[TM][TN]) const
    {
        for (int j = 0; j < TN; ++j) { // by columns: nvcc finds registers in different banks
            for (int i = 0; i < TM; ++i) {
                sum[i][j] += a[i] * b[j];
            }
        }
    }
};

__global__ void __launch_bounds__(THREADS, 2) // 2 blocks at a time: at most 128 registers
    vec4(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    // As is transposed: the rows of A that a thread needs at one step of K are neighbours in it.
    __shared__ __align__(16) float As[BK][BM + PAD], Bs[BK][BN];
    const unsigned blocks_in_row = (N - 1) / BN + 1;
    const int row0 = blockIdx.x / blocks_in_row * BM, col0 = blockIdx.x % blocks_in_row * BN;
    const int rows = M - row0, cols = N - col0; // of C, from the block's first element on:
    C += (size_t)row0 * N + col0;
    // What this thread loads of each tile: four neighbours in a row of A, and in one of B.
    const int thread = threadIdx.x;
    const int a_row = thread / (BK / 4), a_k = thread % (BK / 4) * 4;
    const int b_k = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    const float *a_from = A + (size_t)(row0 + a_row) * K + a_k;
    const float *b_from = B + (size_t)b_k * N + col0 + b_col;
    // Its results: rows ty to ty + 3 and those 4 * ROWS further on; columns likewise. So a warp's
    // threads read neighbouring float4 of Bs.
    const int ty = thread / COLS * 4, tx = thread % COLS * 4;
    float sum[TM][TN] = {};
    for (int left = K; left > 0; left -= BK) { // from these tiles to the end of K
        const float4 a4 = load4(a_from, a_row < rows ? left - a_k : 0);
        const float4 b4 = load4(b_from, b_k < left ? cols - b_col : 0);
        a_from += BK, b_from += (size_t)BK * N;
        As[a_k][a_row] = a4.x, As[a_k + 1][a_row] = a4.y;
        As[a_k + 2][a_row] = a4.z, As[a_k + 3][a_row] = a4.w;
        *(float4 *)&Bs[b_k][b_col] = b4;
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
        for (int j = 0; j < TN; j += 4) {
            const int row = ty + i / 4 * 4 * ROWS + i % 4, col = tx + j * COLS;
            store4(C + (size_t)row * N + col, row < rows ? cols - col : 0, alpha, &sum[i][j], beta);
        }
    }
}
