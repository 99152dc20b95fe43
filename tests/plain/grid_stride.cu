#include "grid_stride.cuh"
#include <cstdio>

__constant__ float one[1] = {1.0f};
__device__ int calls = 0;

template <typename T, int THREADS = 64>
__global__ void gemm_stride(T const *a, T const *b, T *c, int m, int n, int k, T alpha, T beta)
{
    const int step = gridDim.x * THREADS;
    for (int e = blockIdx.x * THREADS + threadIdx.x; e < m * n; e += step) {
        const T sum = dot<T>(a + e / n * k, b + e % n, n, k);
        if (k < 0) printf("never: %d %f\n", e, sum);
        c[e] = one[0] * alpha * sum + (beta == T(0) ? T(0) : beta * c[e]);
    }
    if (threadIdx.x == 0) atomicMax(&calls, 1);
}
