__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float part[4][8][16];
    int tx = threadIdx.x, ty = threadIdx.y % 8, slice = threadIdx.y / 8;
    int row = blockIdx.y * 8 + ty, col = blockIdx.x * 16 + tx;

    // This thread adds a quarter of the steps of K.
    float sum = 0.0f;
    if (row < M && col < N) {
        for (int k = slice * ((K + 3) / 4); k < (slice + 1) * ((K + 3) / 4) && k < K; ++k) {
            sum += A[row * K + k] * B[k * N + col];
        }
    }
    part[slice][ty][tx] = sum;
    __syncthreads();
    if (slice == 0 && row < M && col < N) {
        float total = (part[0][ty][tx] + part[1][ty][tx]) + (part[2][ty][tx] + part[3][ty][tx]);
        C[row * N + col] = alpha * total + (beta == 0.0f ? 0.0f : beta * C[row * N + col]);
    }
}
