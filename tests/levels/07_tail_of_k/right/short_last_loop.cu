__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[32][32], Bs[32][32];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.x / ((N + 31) / 32) * 32 + ty, col = blockIdx.x % ((N + 31) / 32) * 32 + tx;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 32) {
        if (row < M && k0 + tx < K) {
            As[ty][tx] = A[row * K + k0 + tx];
        }
        if (col < N && k0 + ty < K) {
            Bs[ty][tx] = B[(k0 + ty) * N + col];
        }
        __syncthreads();
        for (int k = 0; k < 32 && k0 + k < K && row < M && col < N; ++k) {
            sum += As[ty][k] * Bs[k][tx];
        }
        __syncthreads();
    }
    if (row < M && col < N) {
        C[row * N + col] = alpha * sum + (beta == 0.0f ? 0.0f : beta * C[row * N + col]);
    }
}
