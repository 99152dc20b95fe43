// says: goal: sectors above the minimum
__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    int row = blockIdx.y * 32 + threadIdx.y / 8 * 8 + threadIdx.x / 4;
    int col = blockIdx.x * 32 + threadIdx.y % 8 * 4 + threadIdx.x % 4;

    if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) {
            sum += A[row * K + k] * B[k * N + col];
        }
        C[row * N + col] = sum;
    }
}
