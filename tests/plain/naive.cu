// Kernel 1: one thread computes one element of C.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#define CEIL_DIV(M, N) (((M) + (N) - 1) / (N))
#define CHECK(call)                                                                               \
    do {                                                                                          \
        cudaError_t error = (call);                                                               \
        if (error != cudaSuccess) {                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error));        \
            exit(EXIT_FAILURE);                                                                   \
        }                                                                                         \
    } while (0)

__global__ void sgemm_naive(int M, int N, int K, float alpha, const float *A, const float *B,
                            float beta, float *C)
{
    const uint x = blockIdx.x * blockDim.x + threadIdx.x;
    const uint y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < M && y < N) {
        float tmp = 0.0;
        for (int i = 0; i < K; ++i) {
            tmp += A[x * K + i] * B[i * N + y];
        }
        C[x * N + y] = alpha * tmp + beta * C[x * N + y];
    }
}

void run_sgemm_naive(int M, int N, int K, float alpha, float *A, float *B, float beta, float *C)
{
    dim3 gridDim(CEIL_DIV(M, 32), CEIL_DIV(N, 32));
    dim3 blockDim(32, 32);
    sgemm_naive<<<gridDim, blockDim>>>(M, N, K, alpha, A, B, beta, C);
}

int main(int argc, char **argv)
{
    std::vector<float> a(1024 * 1024, 1.0f);
    float *d_a;
    CHECK(cudaMalloc(&d_a, a.size() * sizeof(float)));
    run_sgemm_naive(1024, 1024, 1024, 1.0f, d_a, d_a, 0.0f, d_a);
    printf("done {\n"); // a brace in a string
    return 0;
}
