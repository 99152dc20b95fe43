__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    // One number for each thread of the grid, cut into a row and a column.
    unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    unsigned thread = threadIdx.y * 16 + threadIdx.x;
    unsigned index = block * 256 + thread;
    unsigned row = index / N, col = index % N;
    float sum = 0.0f;
    const float *a = A + row * K, *b = B + col;
    for (int k = 0; k < K; ++k, ++a, b += N) {
        sum = fmaf(*a, *b, sum);
    }
    C[index] = sum;
}
