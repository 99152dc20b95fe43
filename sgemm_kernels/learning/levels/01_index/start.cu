__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    int row = 0; // TODO: the row of this thread
    int col = 0; // TODO: its column

    float sum = 0.0f;
    for (int k = 0; k < K; ++k) {
        sum += A[row * K + k] * B[k * N + col];
    }
    C[row * N + col] = sum;
}
