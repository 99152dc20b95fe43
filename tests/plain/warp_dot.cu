#include <cstdint>
// A warp computes one element of C: lanes share K, and a shuffle adds their sums.
#define FULL_MASK 0xffffffff
#define WARPS_PER_BLOCK 4

__device__ float warp_sum(float value)
{
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        value += __shfl_down_sync(FULL_MASK, value, offset);
    return value;
}

__global__ void gemm_warp_dot(const float *A, const float *B, float *C, int64_t M, int64_t N,
                              int64_t K, float alpha, float beta)
{
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    const int64_t element = (int64_t)blockIdx.x * WARPS_PER_BLOCK + warp;
    if (element >= M * N) return;
    const int64_t row = element / N, col = element % N;
    float sum = 0.f;
    for (int64_t k = lane; k < K; k += warpSize) sum += A[row * K + k] * B[k * N + col];
    sum = warp_sum(sum);
    const bool finite = __all_sync(FULL_MASK, isfinite(sum));
    if (lane == 0) {
        const float old = beta == 0.f ? 0.f : C[element];
        C[element] = finite ? alpha * sum + beta * old : alpha * sum;
    }
}
