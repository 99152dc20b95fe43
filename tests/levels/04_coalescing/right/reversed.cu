__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    // A warp computes 32 columns, from the right to the left.
    unsigned thread = threadIdx.y * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + thread / 32;
    int col = blockIdx.x * 32 + 31 - thread % 32;
    if (row >= M || col >= N) {
        return;
    }
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) {
        sum += A[row * K + k] * B[k * N + col];
    }
    C[row * N + col] = sum;
}
