#include <cuda_runtime.h>
#define A(i, j) A[(i) + (j) * lda]
#define B(i, j) B[(i) + (j) * ldb]
#define C(i, j) C[(i) + (j) * ldc]
#define MS 16
#define NS 16
#define KS 16

// As in BLAS: all matrices are column-major.
__global__ __launch_bounds__(256) void mysgemm(int M, int N, int K, float alpha, float *A, float *B,
                                               float beta, float *C)
{
    int lda = M, ldb = K, ldc = M;
    int tx = threadIdx.x;
    int bx = blockIdx.x, by = blockIdx.y;
    int row = tx & 15, col = tx >> 4;
    A = &A((bx << 4), 0);
    B = &B(0, (by << 4));
    C = &C((bx << 4), (by << 4));
    __shared__ float sa[MS * KS];
    __shared__ float sb[KS * NS];
    float tmp = 0.;
    for (int k_count = 0; k_count < K; k_count += KS) {
        sa[row + col * MS] = A(row, col);
        sb[row + col * KS] = B(row, col);
        A += (lda << 4);
        B += 16;
        __syncthreads();
        for (int inner_k_count = 0; inner_k_count < KS; inner_k_count++) {
            tmp += sa[row + inner_k_count * MS] * sb[inner_k_count + col * KS];
        }
        __syncthreads();
    }
    C(row, col) = alpha * tmp + beta * C(row, col);
}
