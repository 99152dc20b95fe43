/* Plain CUDA kernels: any __global__ function of pointers, sizes and scalars.
 *
 * sgemm_kernels/custom/plain_launcher.py generates a launcher that calls plain_launch with the
 * kernel's facts. Operands that the kernel cannot read as they lie are copied first. */
#ifndef SGEMM_PLAIN_H
#define SGEMM_PLAIN_H

#include "../gemm/kernel/plain_run.h"
#include "plain_host.h"

/* Functions, since the file may have macros with these names. */
static inline int64_t plain_M_of(const PlainProblem *problem)
{
    return problem->M;
}
static inline int64_t plain_N_of(const PlainProblem *problem)
{
    return problem->N;
}
static inline int64_t plain_K_of(const PlainProblem *problem)
{
    return problem->K;
}
static inline double plain_alpha_of(const PlainProblem *problem)
{
    return static_cast<double>(problem->alpha);
}
static inline double plain_beta_of(const PlainProblem *problem)
{
    return static_cast<double>(problem->beta);
}
static inline float *plain_A_of(const PlainProblem *problem)
{
    return problem->A;
}
static inline float *plain_B_of(const PlainProblem *problem)
{
    return problem->B;
}
static inline float *plain_C_of(const PlainProblem *problem)
{
    return problem->C;
}

/* The operations of grid and block expressions. A division by zero gives 0, which is refused. */
static inline int64_t plain_down(int64_t a, int64_t b)
{
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t plain_up(int64_t a, int64_t b)
{
    return -plain_down(-a, b);
}
static inline int64_t plain_rest(int64_t a, int64_t b)
{
    return a - b * plain_down(a, b);
}
static inline int64_t plain_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t plain_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
