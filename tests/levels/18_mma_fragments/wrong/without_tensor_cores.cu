// says: goal: multiply-adds on tensor cores; mma_m16n8k16
__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    for (int i = threadIdx.x; i < 16 * 8; i += 32) {
        int row = blockIdx.y * 16 + i / 8, col = blockIdx.x * 8 + i % 8;
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) {
            sum += A[row * K + k] * B[k * N + col];
        }
        float *c = C + row * N + col;
        *c = alpha * sum + (beta == 0.0f ? 0.0f : beta * *c);
    }
}
