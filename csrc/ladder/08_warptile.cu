// idea      give each warp a square of C, and each thread more of it: a load serves more products.
// block     128 x 256 results, 64 x 64 per warp, 8 x 16 per thread; tiles 128 x 8 and 8 x 256.
// traffic   6 / 128 bytes from global memory per multiply-add, and 6 / 8 from shared memory.
// bound by  issue slots. Registers allow one block per SM: a thread has 128 results, 48 values of
//           two steps, and 12 on their way to shared memory.
// next      async: copy tiles straight to shared memory, past the registers.
// C = alpha * A @ B + beta * C. The matrices are row-major, of any size: A is M x K, B is K x N.
// Launch: ((N - 1) / BN + 1) * ((M - 1) / BM + 1) blocks of THREADS threads.
constexpr int BM = 128, BN = 256, BK = 8, WM = 64, WN = 64, TM = 8, TN = 16, LDA = BM + 4;
constexpr int ROWS = WM / TM, COLS = WN / TN, THREADS = BM * BN / (TM * TN); // a warp: 8 x 4
static_assert(BM * BK == 4 * THREADS && BK * BN == 8 * THREADS && ROWS * COLS == 32, "tile sizes");

// Loads four neighbours, with zeros for all but `count`. wide: each row is aligned float4 values.
__device__ float4 load4(const float *from, int count, bool wide)
{
    return wide ? (count > 0 ? *(const float4 *)from : float4{})
                : make_float4(count > 0 ? from[0] : 0.0f, count > 1 ? from[1] : 0.0f,
                              count > 2 ? from[2] : 0.0f, count > 3 ? from[3] : 0.0f);
}

// C = alpha * sum + beta * C for four neighbours, of which `count` are inside C.
__device__ void store4(float *to, int count, bool wide, float alpha, const float *sum, float beta)
{
    const float4 c4 = load4(to, beta == 0.0f ? 0 : count, wide);
    float c[4] = {c4.x, c4.y, c4.z, c4.w};
    for (int i = 0; i < 4; ++i) {
        c[i] = beta == 0.0f ? alpha * sum[i] : fmaf(beta, c[i], alpha * sum[i]);
        if (!wide && i < count) {
            to[i] = c[i];
        }
    }
    if (wide && count > 0) {
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

    // Every other row goes backwards, so that neighbouring multiply-adds always share an operand.
    __device__ void multiply(float (&sum)[TM][TN]) const
    {
        for (int i = 0; i < TM; ++i) {
            for (int n = 0; n < TN; ++n) {
                const int j = i % 2 ? TN - 1 - n : n;
                sum[i][j] += a[i] * b[j];
            }
        }
    }
};

__global__ void __launch_bounds__(THREADS, 1) // 1 block at a time: up to 255 registers
    warptile(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    __shared__ __align__(16) float As[2][BK][LDA], Bs[2][BK][BN]; // As: transposed, padded
    const unsigned blocks_in_row = (N - 1) / BN + 1;
    const int row0 = blockIdx.x / blocks_in_row * BM, col0 = blockIdx.x % blocks_in_row * BN;
    const int rows = M - row0, cols = N - col0; // of C, from the block's first element on:
    const bool wide = N % 4 == 0 && K % 4 == 0 && ((size_t)A | (size_t)B | (size_t)C) % 16 == 0;
    C += (size_t)row0 * N + col0;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int a_row = thread / (BK / 4), a_k = thread % (BK / 4) * 4;
    const int b_k = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    const float *a_from = A + (size_t)(row0 + a_row) * K + a_k;
    const float *b_from = B + (size_t)b_k * N + col0 + b_col;
    const int ty = warp / (BN / WN) * WM + lane / COLS * 4;
    const int tx = warp % (BN / WN) * WN + lane % COLS * 4;
    float4 a4, b4[2];
    const auto load = [&](int left) { // of the next tiles, from global memory
        a4 = load4(a_from, a_row < rows ? left - a_k : 0, wide);
        b4[0] = load4(b_from, b_k < left ? cols - b_col : 0, wide);
        b4[1] = load4(b_from + (size_t)4 * N, b_k + 4 < left ? cols - b_col : 0, wide);
        a_from += BK, b_from += (size_t)BK * N;
    };
    const auto store = [&](int buffer) {
        As[buffer][a_k][a_row] = a4.x, As[buffer][a_k + 1][a_row] = a4.y;
        As[buffer][a_k + 2][a_row] = a4.z, As[buffer][a_k + 3][a_row] = a4.w;
        *(float4 *)&Bs[buffer][b_k][b_col] = b4[0];
        *(float4 *)&Bs[buffer][b_k + 4][b_col] = b4[1];
    };
    load(K), store(0);
    __syncthreads(); // the first tiles are complete
    float sum[TM][TN] = {};
    Step even, odd;
    const float *a = &As[0][0][ty], *b = &Bs[0][0][tx];
    even.read(a, b);
    for (int left = K, now = 0; left > 0; left -= BK) { // now: the buffer of the present tiles
        load(left - BK);                                // zeros, after the last tiles
#pragma unroll 1                                        // unrolled, nvcc would mix the steps
        for (int k = 0; k < BK - 2; k += 2) {
            odd.read(a += LDA, b += BN);
            even.multiply(sum);
            even.read(a += LDA, b += BN);
            odd.multiply(sum);
        }
        odd.read(a += LDA, b += BN);
        even.multiply(sum);
        store(now ^= 1);
        __syncthreads(); // the next tiles are complete, and all threads have read the present ones
        even.read(a = &As[now][0][ty], b = &Bs[now][0][tx]);
        odd.multiply(sum);
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; j += 4) {
            const int row = ty + i / 4 * 4 * ROWS + i % 4, col = tx + j * COLS;
            const int count = row < rows ? cols - col : 0;
            store4(C + (size_t)row * N + col, count, wide, alpha, &sum[i][j], beta);
        }
    }
}
