/* The main loop's registers of a thread on CUDA cores. */
#ifndef SGEMM_GEMM_FRAGMENT_H
#define SGEMM_GEMM_FRAGMENT_H

#include "../kernel/kernel.h"

/* A thread's values of A and B at one step of K: float4s, which are 4 * ROWS rows and 4 * COLS
 * columns apart. */
template <int TM, int TN, int ROWS, int COLS> struct Fragment {
    float a[TM], b[TN];

    __device__ __forceinline__ void load(const float *As, const float *Bs)
    {
        for (int i = 0; i < TM; i += 4) {
            read4(a + i, As + i * ROWS);
        }
        for (int j = 0; j < TN; j += 4) {
            read4(b + j, Bs + j * COLS);
        }
    }

    /* Adds the products of rows FIRST to LAST - 1. Every other row goes backwards. Then each
     * multiply-add shares an operand with the previous one, and the register file delivers it
     * once. */
    template <int FIRST = 0, int LAST = TM>
    __device__ __forceinline__ void multiply(float (&sum)[TM][TN]) const
    {
        for (int i = FIRST; i < LAST; ++i) {
            for (int n = 0; n < TN; ++n) {
                const int j = i % 2 ? TN - 1 - n : n;
                sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
            }
        }
    }
};

#endif
