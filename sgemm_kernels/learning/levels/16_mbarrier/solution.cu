#include "ptx.h"

__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[2][16][16], Bs[2][16][16];
    __shared__ Mbarrier full[2]; // full[b]: all copies to buffer b have landed
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;

    if (ty == 0 && tx < 2) {
        mbarrier_init(&full[tx], 256); // arrivals of a phase: one of each thread
    }
    __syncthreads();

    float sum = 0.0f;
    int tiles = (K + 15) / 16;
    for (int t = 0; t <= tiles; ++t) {
        if (t < tiles) {
            int k = t * 16;
            bool in_a = row < M && k + tx < K, in_b = k + ty < K && col < N;
            cp_async4(&As[t % 2][ty][tx], in_a ? &A[row * K + k + tx] : A, in_a);
            cp_async4(&Bs[t % 2][ty][tx], in_b ? &B[(k + ty) * N + col] : B, in_b);
            cp_async_mbarrier_arrive(&full[t % 2]); // once this thread's copies have landed
        }
        if (t > 0) {
            int last = t - 1;
            mbarrier_wait(&full[last % 2], last / 2 % 2);
            for (int k = 0; k < 16; ++k) {
                sum += As[last % 2][ty][k] * Bs[last % 2][k][tx];
            }
            __syncthreads(); // all have read the buffer
        }
    }
    if (row < M && col < N) {
        C[row * N + col] = alpha * sum + (beta == 0.0f ? 0.0f : beta * C[row * N + col]);
    }
}
