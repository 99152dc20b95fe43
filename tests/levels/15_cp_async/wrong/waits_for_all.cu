// says: goal: share of shared loads with a copy on its way; waits for the next tile
#include "ptx.h"

__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[2][16][16], Bs[2][16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;

    float sum = 0.0f;
    int tiles = (K + 15) / 16;
    for (int t = 0; t <= tiles; ++t) {
        if (t < tiles) { // start the copies of tile t; beyond the matrices they write 0
            int k = t * 16;
            bool in_a = row < M && k + tx < K, in_b = k + ty < K && col < N;
            cp_async4(&As[t % 2][ty][tx], in_a ? &A[row * K + k + tx] : A, in_a);
            cp_async4(&Bs[t % 2][ty][tx], in_b ? &B[(k + ty) * N + col] : B, in_b);
        }
        cp_async_commit();
        if (t > 0) { // multiply tile t - 1 meanwhile
            cp_async_wait<0>();
            __syncthreads();
            for (int k = 0; k < 16; ++k) {
                sum += As[(t - 1) % 2][ty][k] * Bs[(t - 1) % 2][k][tx];
            }
            __syncthreads();
        }
    }
    if (row < M && col < N) {
        C[row * N + col] = alpha * sum + (beta == 0.0f ? 0.0f : beta * C[row * N + col]);
    }
}
