#include <cuda_fp16.h>

constexpr int BM = 64, BN = 64, BK = 64; // the block's tile
constexpr int WM = 32, WN = 32;          // a warp's results
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;

/* sum += A (16 x 16) @ B (16 x 8), by a warp on a tensor core. The fragments are level 18's. */
__device__ void mma(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The bits of x as an fp16 number. */
__device__ unsigned fp16(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}

/* Two fp16 numbers in a register, x in the low half. */
__device__ unsigned pair(float x, float y)
{
    return fp16(x) | fp16(y) << 16;
}

/* What is lost when x becomes an fp16 number. */
__device__ float rest(float x)
{
    return x - __half2float(__float2half_rn(x));
}

/* Four neighbours along K, split: their hi in x and y, their lo in z and w. */
__device__ uint4 split(float4 v)
{
    return make_uint4(pair(v.x, v.y), pair(v.z, v.w), pair(rest(v.x), rest(v.y)),
                      pair(rest(v.z), rest(v.w)));
}

__global__ void __launch_bounds__(THREADS)
    sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    // The padding avoids bank conflicts.
    __shared__ uint4 As[BM][BK / 4 + 4], Bs[BK / 4][BN + 2];
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    int group = lane / 4, t = lane % 4;
    int warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;
    A += (size_t)blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

    float sum[WM / 16][WN / 8][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = thread; i < BM * BK / 4; i += THREADS) {
            int row = i / (BK / 4), k4 = i % (BK / 4);
            float4 v = *(const float4 *)&A[(size_t)row * K + k0 + k4 * 4];
            As[row][k4] = split(v);
        }
        // TODO: fill Bs. Bs[k4][col] has four rows of B, from k0 + k4 * 4 on.
        __syncthreads(); // the tiles are complete

        // A tensor core truncates its sums, and short sums lose less: each tile begins new ones.
        float part[WM / 16][WN / 8][4] = {};
        for (int k = 0; k < BK; k += 16) { // a step of mma
            int k4 = k / 4 + t;
            uint4 b[WN / 8];
            for (int j = 0; j < WN / 8; ++j) {
                b[j] = Bs[k4][warp_col + j * 8 + group];
            }
            for (int i = 0; i < WM / 16; ++i) {
                uint4 upper = As[warp_row + i * 16 + group][k4];
                uint4 lower = As[warp_row + i * 16 + group + 8][k4];
                unsigned a_hi[4] = {upper.x, lower.x, upper.y, lower.y};
                for (int j = 0; j < WN / 8; ++j) {
                    unsigned b_hi[2] = {b[j].x, b[j].y};
                    mma(part[i][j], a_hi, b_hi); // TODO: three products
                }
            }
        }
        for (int i = 0; i < WM / 16; ++i) {
            for (int j = 0; j < WN / 8; ++j) {
                for (int r = 0; r < 4; ++r) {
                    sum[i][j][r] += part[i][j][r];
                }
            }
        }
        __syncthreads(); // all threads have read the tiles
    }

    for (int i = 0; i < WM / 16; ++i) {
        for (int j = 0; j < WN / 8; ++j) {
            for (int down = 0; down < 16; down += 8) { // two rows
                int row = warp_row + i * 16 + down + group, col = warp_col + j * 8 + 2 * t;
                float2 *c = (float2 *)&C[(size_t)row * N + col];
                float2 old = beta == 0.0f ? make_float2(0.0f, 0.0f) : *c;
                *c = make_float2(alpha * sum[i][j][down / 4] + beta * old.x,
                                 alpha * sum[i][j][down / 4 + 1] + beta * old.y);
            }
        }
    }
}
