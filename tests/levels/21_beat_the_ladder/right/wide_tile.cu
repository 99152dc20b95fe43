// Change these, or anything else. The launch follows them.
constexpr int BM = 64, BN = 128, BK = 8; // the block's tile
constexpr int TM = 8, TN = 8;            // a thread's results; multiples of 4
constexpr int THREADS = (BM / TM) * (BN / TN);

__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[BK][BM + 4], Bs[BK][BN];
    // A warp is 8 x 4 threads in a zigzag, and a thread's results are squares of 4 x 4.
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    int across = BN / TN / 4; // warps
    int ty = (warp / across * 8 + lane % 2 + lane / 8 * 2) * 4;
    int tx = (warp % across * 4 + lane / 2 % 4) * 4;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = thread; i < BM * BK; i += THREADS) {
            int row = row0 + i / BK, k = k0 + i % BK;
            As[i % BK][i / BK] = row < M && k < K ? A[row * K + k] : 0.0f;
        }
        for (int i = thread; i < BK * BN; i += THREADS) {
            int k = k0 + i / BN, col = col0 + i % BN;
            Bs[i / BN][i % BN] = k < K && col < N ? B[k * N + col] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < BK; ++k) {
            float4 a[TM / 4], b[TN / 4];
            for (int i = 0; i < TM / 4; ++i) {
                a[i] = *(float4 *)&As[k][ty + i * (BM / TM * 4)];
            }
            for (int j = 0; j < TN / 4; ++j) {
                b[j] = *(float4 *)&Bs[k][tx + j * (BN / TN * 4)];
            }
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < TN; ++j) {
                    sum[i][j] += ((float *)a)[i] * ((float *)b)[j];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) {
            int row = row0 + ty + i / 4 * (BM / TM * 4) + i % 4;
            int col = col0 + tx + j / 4 * (BN / TN * 4) + j % 4;
            if (row < M && col < N) {
                float *c = C + row * N + col;
                *c = alpha * sum[i][j] + (beta == 0.0f ? 0.0f : beta * *c);
            }
        }
    }
}
