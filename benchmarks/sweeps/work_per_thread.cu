// One thread computes TM x TN results with both operands in global memory. Without shared memory,
// the registers alone decide how often a loaded value is used. Compiled once for each TM and TN.
#include "harness.cuh"

constexpr int ROWS = 8, COLS = 32; // threads of a block; a warp has consecutive columns of C
constexpr int BM = ROWS * TM, BN = COLS * TN;

extern "C" __global__ void __launch_bounds__(ROWS *COLS)
    work_per_thread(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C,
                    int n)
{
    // This thread owns rows row, row + ROWS, ... and columns col, col + COLS, ...: at each step the
    // threads of a warp read neighbouring elements of B, and the same one of A.
    const int row = blockIdx.y * BM + threadIdx.y, col = blockIdx.x * BN + threadIdx.x;
    const float *a_from = A + static_cast<size_t>(row) * n;
    const float *b_from = B + col;
    const size_t ld = static_cast<size_t>(n);

    float sum[TM][TN] = {};
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        float a[TM], b[TN];
#pragma unroll
        for (int i = 0; i < TM; ++i) {
            a[i] = a_from[i * ROWS * ld];
        }
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            b[j] = b_from[j * COLS];
        }
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
            for (int j = 0; j < TN; ++j) {
                sum[i][j] += a[i] * b[j];
            }
        }
        a_from += 1;
        b_from += ld;
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            C[(row + i * ROWS) * ld + col + j * COLS] = sum[i][j];
        }
    }
}

int main(int, char **arguments)
{
    const int n = atoi(arguments[1]); // a multiple of BM and of BN
    measure({{work_per_thread, dim3(n / BN, n / BM), dim3(COLS, ROWS)}}, n);
}
