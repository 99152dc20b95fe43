#include <cuda_runtime.h>

#define BLOCK 32
#define THREAD 4

// 2-D blocks, every thread computes 4 x 4 results, any size.
static __global__ void gemm2d(float *A, float *B, float *C, const unsigned int M,
                              const unsigned int N, const unsigned int K, float alpha, float beta)
{
    __shared__ float sA[BLOCK][16], sB[16][BLOCK];
    const unsigned tx = threadIdx.x, ty = threadIdx.y, tid = ty * blockDim.x + tx;
    float acc[THREAD][THREAD] = {};
    for (unsigned k0 = 0; k0 < K; k0 += 16) {
        for (unsigned i = tid; i < BLOCK * 16; i += blockDim.x * blockDim.y) {
            const unsigned r = i / 16, c = i % 16;
            const unsigned gr = blockIdx.y * BLOCK + r, gc = k0 + c;
            sA[r][c] = gr < M && gc < K ? A[gr * K + gc] : 0.f;
        }
        for (unsigned i = tid; i < 16 * BLOCK; i += blockDim.x * blockDim.y) {
            const unsigned r = i / BLOCK, c = i % BLOCK;
            const unsigned gr = k0 + r, gc = blockIdx.x * BLOCK + c;
            sB[r][c] = gr < K && gc < N ? B[gr * N + gc] : 0.f;
        }
        __syncthreads();
        for (int k = 0; k < 16; ++k) {
            float a[THREAD], b[THREAD];
            for (int i = 0; i < THREAD; ++i) a[i] = sA[ty * THREAD + i][k];
            for (int j = 0; j < THREAD; ++j) b[j] = sB[k][tx * THREAD + j];
            for (int i = 0; i < THREAD; ++i)
                for (int j = 0; j < THREAD; ++j) acc[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < THREAD; ++i)
        for (int j = 0; j < THREAD; ++j) {
            const unsigned r = blockIdx.y * BLOCK + ty * THREAD + i;
            const unsigned c = blockIdx.x * BLOCK + tx * THREAD + j;
            if (r < M && c < N) {
                if (beta == 0.f)
                    C[r * N + c] = alpha * acc[i][j];
                else
                    C[r * N + c] = alpha * acc[i][j] + beta * C[r * N + c];
            }
        }
}
