__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float total[8][16];
    int tx = threadIdx.x, ty = threadIdx.y % 8, slice = threadIdx.y / 8;
    int row = blockIdx.y * 8 + ty, col = blockIdx.x * 16 + tx;

    if (slice == 0) {
        total[ty][tx] = 0.0f;
    }
    __syncthreads();
    // This thread adds a quarter of the steps of K.
    float sum = 0.0f;
    if (row < M && col < N) {
        for (int k = slice; k < K; k += 4) {
            sum += A[row * K + k] * B[k * N + col];
        }
    }
    atomicAdd(&total[ty][tx], sum); // TODO: in which order do the four threads add?
    __syncthreads();
    if (slice == 0 && row < M && col < N) {
        C[row * N + col] = alpha * total[ty][tx] + (beta == 0.0f ? 0.0f : beta * C[row * N + col]);
    }
}
