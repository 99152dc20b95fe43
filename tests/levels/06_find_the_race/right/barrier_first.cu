__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[16][16], Bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.x * 16 + ty, col = blockIdx.y * 16 + tx;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        if (k0 > 0) {
            __syncthreads(); // for all threads or for none: k0 is the same in all
        }
        As[ty][tx] = row < M ? A[row * K + k0 + tx] : 0.0f;
        Bs[ty][tx] = col < N ? B[(k0 + ty) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; ++k) {
            sum += As[ty][k] * Bs[k][tx];
        }
    }
    if (row < M && col < N) {
        C[row * N + col] = alpha * sum + (beta == 0.0f ? 0.0f : beta * C[row * N + col]);
    }
}
