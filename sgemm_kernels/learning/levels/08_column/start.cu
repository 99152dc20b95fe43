__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[64][8], Bs[8][32];
    int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 32 + tx;
    int row0 = blockIdx.y * 64, col = blockIdx.x * 32 + tx;

    float sum[8] = {};
    for (int k0 = 0; k0 < K; k0 += 8) {
        for (int i = thread; i < 64 * 8; i += 256) {
            int row = row0 + i / 8, k = k0 + i % 8;
            As[i / 8][i % 8] = row < M && k < K ? A[row * K + k] : 0.0f;
        }
        Bs[ty][tx] = k0 + ty < K && col < N ? B[(k0 + ty) * N + col] : 0.0f;
        __syncthreads();
        // TODO: each value of B is loaded 8 times.
        for (int i = 0; i < 8; ++i) {
            for (int k = 0; k < 8; ++k) {
                sum[i] += As[ty * 8 + i][k] * Bs[k][tx];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i) {
        int row = row0 + ty * 8 + i;
        if (row < M && col < N) {
            float *c = C + row * N + col;
            *c = alpha * sum[i] + (beta == 0.0f ? 0.0f : beta * *c);
        }
    }
}
