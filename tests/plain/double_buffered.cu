#include <cstdio>
#include "cuda_runtime.h"

const int BM = 32;
const int BN = 32;
const int BK = 8;
const int TM = 4;
const int TN = 4;
constexpr int NUM_THREADS = BM * BN / (TM * TN);

/* Two buffers of each tile, and one barrier for each step. */
extern "C" __global__ __launch_bounds__(NUM_THREADS) void sgemm_double_buffer(
    const int M, const int N, const int K, const float alpha, const float *__restrict__ A,
    const float *__restrict__ B, const float beta, float *__restrict__ C)
{
    __shared__ __align__(16) float As[2][BK][BM];
    __shared__ __align__(16) float Bs[2][BK][BN];
    const int tid = threadIdx.x, tx = tid % (BN / TN), ty = tid / (BN / TN);
    const int aRow = tid / (BK / 4), aCol = tid % (BK / 4) * 4;
    const int bRow = tid / (BN / 4), bCol = tid % (BN / 4) * 4;
    const float *a = A + (blockIdx.y * BM + aRow) * (size_t)K + aCol;
    const float *b = B + bRow * (size_t)N + blockIdx.x * BN + bCol;
    float acc[TM][TN] = {};
    float4 nextA = *reinterpret_cast<const float4 *>(a), nextB = *(const float4 *)b;
    int stage = 0;
    for (int k = 0; k < K; k += BK) {
        As[stage][aCol][aRow] = nextA.x;
        As[stage][aCol + 1][aRow] = nextA.y;
        As[stage][aCol + 2][aRow] = nextA.z;
        As[stage][aCol + 3][aRow] = nextA.w;
        *reinterpret_cast<float4 *>(&Bs[stage][bRow][bCol]) = nextB;
        __syncthreads();
        if (k + BK < K) {
            nextA = *reinterpret_cast<const float4 *>(a + k + BK);
            nextB = *reinterpret_cast<const float4 *>(b + (size_t)(k + BK) * N);
        }
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            const float4 x = *reinterpret_cast<const float4 *>(&As[stage][i][ty * TM]);
            const float4 y = *reinterpret_cast<const float4 *>(&Bs[stage][i][tx * TN]);
            const float xs[] = {x.x, x.y, x.z, x.w}, ys[] = {y.x, y.y, y.z, y.w};
            for (int m = 0; m < TM; ++m)
                for (int n = 0; n < TN; ++n) acc[m][n] = fmaf(xs[m], ys[n], acc[m][n]);
        }
        stage ^= 1;
    }
    for (int m = 0; m < TM; ++m) {
        float *c = &C[(size_t)(blockIdx.y * BM + ty * TM + m) * N + blockIdx.x * BN + tx * TN];
        for (int n = 0; n < TN; ++n) c[n] = alpha * acc[m][n] + (beta != 0.f ? beta * c[n] : 0.f);
    }
}
