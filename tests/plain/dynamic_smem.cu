#include <cuda_runtime.h>
#include <stdio.h>

extern __shared__ float smem[];

__device__ __forceinline__ int at(int row, int col, int ld) { return row * ld + col; }

__global__ void gemm_dyn(int M, int N, int K, const float *A, int lda, const float *B, int ldb,
                         float *C, int ldc, float alpha, float beta, int tile)
{
    float *a = smem;
    float *b = smem + tile * tile;
    const int row = blockIdx.y * tile + threadIdx.y, col = blockIdx.x * tile + threadIdx.x;
    float sum = 0.f;
    for (int k0 = 0; k0 < K; k0 += tile) {
        const int k = k0 + threadIdx.x, l = k0 + threadIdx.y;
        a[at(threadIdx.y, threadIdx.x, tile)] = row < M && k < K ? A[at(row, k, lda)] : 0.f;
        b[at(threadIdx.y, threadIdx.x, tile)] = l < K && col < N ? B[at(l, col, ldb)] : 0.f;
        __syncthreads();
        for (int i = 0; i < min(tile, K - k0); ++i)
            sum += a[at(threadIdx.y, i, tile)] * b[at(i, threadIdx.x, tile)];
        __syncthreads();
    }
    if (row < M && col < N)
        C[at(row, col, ldc)] = alpha * sum + (beta == 0.f ? 0.f : beta * C[at(row, col, ldc)]);
}

void launch(int M, int N, int K, const float *A, const float *B, float *C)
{
    const int tile = 16;
    const size_t bytes = 2 * tile * tile * sizeof(float);
    cudaFuncSetAttribute(gemm_dyn, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    gemm_dyn<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16), bytes>>>(M, N, K, A, K, B, N, C, N,
                                                                        1.f, 0.f, tile);
}
