#include <cuda_runtime.h>
#include <cstdio>
// Half a warp computes an element, with masks and widths, in blocks that are no multiple of 32.
__global__ void gemm_half_warps(const float *A, const float *B, float *C, int M, int N, int K)
{
    const int lane = threadIdx.x & 15;
    const unsigned mask = 0xffffu << (threadIdx.x & 16);
    const int element = blockIdx.x * 3 + threadIdx.x / 16;
    if (element < M * N) {
        const int row = element / N, col = element % N;
        float sum = 0.f;
        for (int k = lane; k < K; k += 16) sum += A[row * K + k] * B[k * N + col];
        for (int bits = 8; bits > 0; bits >>= 1) sum += __shfl_xor_sync(mask, sum, bits, 16);
        __syncwarp(mask);
        if (lane == 0) C[element] = sum;
    }
}
