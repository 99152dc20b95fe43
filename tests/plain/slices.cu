#include <cuda_runtime.h>
// 3-D blocks: threadIdx.z is a slice of K, and the slices are added through shared memory.
template <int TILE, int SLICES>
__global__ void gemm_slices(int N, int M, int K, float *__restrict__ C, const float *__restrict__ A,
                            const float *__restrict__ B, float beta, float alpha)
{
    __shared__ float part[SLICES][TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    const int row = blockIdx.x * TILE + y, col = blockIdx.y * TILE + x;
    float sum = 0;
    if (row < M && col < N)
        for (int k = z; k < K; k += SLICES) sum += A[row * K + k] * B[k * N + col];
    part[z][y][x] = sum;
    __syncthreads();
    if (z == 0 && row < M && col < N) {
        for (int other = 1; other < SLICES; ++other) sum += part[other][y][x];
        C[row * N + col] = alpha * sum + (beta == 0 ? 0 : beta * C[row * N + col]);
    }
}
template __global__ void gemm_slices<8, 4>(int, int, int, float *, const float *, const float *,
                                           float, float);
