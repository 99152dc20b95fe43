__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[32][32], Bs[32][32]; // TODO: 32-way bank conflicts
    int tx = threadIdx.x, ty = threadIdx.y;
    int row0 = blockIdx.x * 32, col = blockIdx.y * 32 + tx;

    float sum[4] = {};
    for (int k0 = 0; k0 < K; k0 += 32) {
        for (int i = ty; i < 32; i += 8) {
            int row = row0 + i, k = k0 + i;
            As[tx][i] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.0f;
            Bs[i][tx] = k < K && col < N ? B[k * N + col] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < 32; ++k) {
            float b = Bs[k][tx];
            for (int i = 0; i < 4; ++i) {
                sum[i] += As[k][ty * 4 + i] * b;
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        int row = row0 + ty * 4 + i;
        if (row < M && col < N) {
            float *c = C + row * N + col;
            *c = alpha * sum[i] + (beta == 0.0f ? 0.0f : beta * *c);
        }
    }
}
