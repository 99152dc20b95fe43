#include "split_fp16.h" // fp16_from_float, float_from_fp16, and mma_m16n8k16 from ptx.h

/* Two fp16 numbers in a register, x in the low half. */
__device__ unsigned pair(float x, float y)
{
    return fp16_from_float(x) | static_cast<unsigned>(fp16_from_float(y)) << 16;
}

/* The part of x that is lost when it is rounded to fp16. */
__device__ float rest(float x)
{
    return x - float_from_fp16(fp16_from_float(x));
}

__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    int lane = threadIdx.x, group = lane / 4, t = lane % 4;
    int row0 = blockIdx.y * 16, col0 = blockIdx.x * 8;

    float sum[4] = {};
    for (int k0 = 0; k0 < K; k0 += 16) {
        unsigned a[4], a_lo[4], b[2], b_lo[2];
        for (int i = 0; i < 4; ++i) {
            const float *from = A + (row0 + group + i % 2 * 8) * K + k0 + 2 * t + i / 2 * 8;
            a[i] = pair(from[0], from[1]);
            a_lo[i] = pair(rest(from[0]), rest(from[1]));
        }
        for (int i = 0; i < 2; ++i) {
            const float *from = B + (k0 + 2 * t + i * 8) * N + col0 + group;
            b[i] = pair(from[0], from[N]);
            b_lo[i] = pair(rest(from[0]), rest(from[N]));
        }
        mma_m16n8k16(sum, a_lo, b);
        mma_m16n8k16(sum, a, b_lo);
        mma_m16n8k16(sum, a, b);
    }
    for (int i = 0; i < 4; ++i) {
        float *c = C + (row0 + group + i / 2 * 8) * N + col0 + 2 * t + i % 2;
        *c = alpha * sum[i] + (beta == 0.0f ? 0.0f : beta * *c);
    }
}
