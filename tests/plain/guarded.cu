#include "cuda_runtime.h"
#include "device_launch_parameters.h"

constexpr int TILE = 16;

__global__ void tiled_matmul(const float* __restrict__ a, const float* __restrict__ b,
                             float* __restrict__ c, int m, int n, int k)
{
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE + 1];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int t = 0; t < (k + TILE - 1) / TILE; t++) {
        const int ka = t * TILE + threadIdx.x, kb = t * TILE + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = (row < m && ka < k) ? __ldg(&a[row * k + ka]) : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = (kb < k && col < n) ? __ldg(b + kb * n + col) : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++)
            sum = __fmaf_rn(tile_a[threadIdx.y][i], tile_b[i][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
