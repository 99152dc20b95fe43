// says: goal: share of shared loads after a load of the next tile; no thread computes
__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[3][16][16], Bs[3][16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;

    float sum = 0.0f;
    for (int k0 = 0, now = 0; k0 < K; k0 += 16, now = (now + 1) % 3) {
        As[now][ty][tx] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.0f;
        Bs[now][ty][tx] = k0 + ty < K && col < N ? B[(k0 + ty) * N + col] : 0.0f;
        __syncthreads(); // also: all have read the tile of two rounds before
        for (int k = 0; k < 16; ++k) {
            sum += As[now][ty][k] * Bs[now][k][tx];
        }
    }
    if (row < M && col < N) {
        C[row * N + col] = alpha * sum + (beta == 0.0f ? 0.0f : beta * C[row * N + col]);
    }
}
