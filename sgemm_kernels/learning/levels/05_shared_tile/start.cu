__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[16][16], Bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        // TODO: load a tile of A to As and a tile of B to Bs, one element per thread. Store 0 for
        // rows beyond A and columns beyond B.

        // TODO: read As[ty][k] and Bs[k][tx] here instead of global memory.
        for (int k = k0; k < k0 + 16; ++k) {
            sum += row < M && col < N ? A[row * K + k] * B[k * N + col] : 0.0f;
        }
    }
    if (row < M && col < N) {
        C[row * N + col] = alpha * sum + (beta == 0.0f ? 0.0f : beta * C[row * N + col]);
    }
}
