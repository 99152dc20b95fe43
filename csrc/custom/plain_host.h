/* Between the generated launcher of a plain kernel (plain.h) and plain.cpp. */
#ifndef SGEMM_PLAIN_HOST_H
#define SGEMM_PLAIN_HOST_H

#include "../base/custom_kernel.h"

/* What the launcher must do for the kernel. */
struct PlainFacts {
    int multiple_of[3]; /* M, N and K; operands are padded with zeros to these multiples */
    bool square;        /* one size for M, N and K */
    bool scales, adds;  /* it has parameters alpha, and beta */
    bool accumulates;   /* it adds to C, which must be zero first */
    bool reads_C;       /* even if beta is 0 */
    bool transposed[3]; /* it wants the transposes of A, B, C */
};

/* The product that the kernel computes, with row-major operands. */
struct PlainProblem {
    int64_t M, N, K;
    float alpha, beta;
    float *A, *B, *C;
};

extern "C" {
/* Launches the kernel for one problem. */
typedef Status PlainStart(const PlainProblem *problem, const Launch *where);

/* Copies the operands where necessary, starts the kernel, and finishes C. */
Status plain_launch(const PlainFacts *facts, PlainStart *start, const Sgemm *problem,
                    const Launch *where);

/* False while a driver asks what happens at sizes that the kernel does not support. */
extern bool plain_pads;
}

#endif
