__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[2][16][16], Bs[2][16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;

    float sum = 0.0f;
    As[0][ty][tx] = row < M && tx < K ? A[row * K + tx] : 0.0f;
    Bs[0][ty][tx] = ty < K && col < N ? B[ty * N + col] : 0.0f;
    __syncthreads();
    for (int k0 = 0, now = 0; k0 < K; k0 += 16, now ^= 1) {
        int next = k0 + 16; // the tile that is loaded while this one is multiplied
        float a = row < M && next + tx < K ? A[row * K + next + tx] : 0.0f;
        float b = next + ty < K && col < N ? B[(next + ty) * N + col] : 0.0f;
        for (int k = 0; k < 16; ++k) {
            sum += As[now][ty][k] * Bs[now][k][tx];
        }
        As[now ^ 1][ty][tx] = a; // only now, so that the loads had the time of the loop
        Bs[now ^ 1][ty][tx] = b;
        __syncthreads();
    }
    if (row < M && col < N) {
        C[row * N + col] = alpha * sum + (beta == 0.0f ? 0.0f : beta * C[row * N + col]);
    }
}
