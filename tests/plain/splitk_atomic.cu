#include <cuda_runtime.h>
#define SPLIT 4

// blockIdx.z adds its share of K to C, which the host clears first.
__global__ void splitk(const float *A, const float *B, float *C, int M, int N, int K)
{
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int share = (K + SPLIT - 1) / SPLIT;
    const int first = blockIdx.z * share, last = min(first + share, K);
    if (row >= M || col >= N) return;
    float partial = 0.0f;
    for (int k = first; k < last; k++) partial += A[row * K + k] * B[k * N + col];
    atomicAdd(&C[row * N + col], partial);
}
