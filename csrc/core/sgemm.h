/* The problem that every layer solves: C = alpha * A @ B + beta * C, in single precision. */
#ifndef SGEMM_SGEMM_H
#define SGEMM_SGEMM_H

#include <stdint.h>

/* A matrix in memory. Element (i, j) is data[i * row_stride + j * col_stride]; strides are in
 * elements and may be negative or zero. The matrix does not own its memory. */
typedef struct {
    float *data;
    int64_t rows, cols;
    int64_t row_stride, col_stride;
} Matrix;

/* The distance between the rows (or columns) of `length` elements in a device's copy of a matrix: a
 * multiple of 4, unless they are shorter than that. */
static inline int64_t leading_dimension(int64_t length)
{
    return length < 4 ? length : (length + 3) / 4 * 4;
}

/* The arguments of a kernel. A (M, K) and B (K, N) are only read. Each is row-major or
 * column-major, with any leading dimension: one of its strides is 1. C (M, N) is row-major, does
 * not overlap A or B, and is not read when beta is 0. */
typedef struct {
    Matrix A, B, C;
    float alpha, beta;
} Sgemm;

#endif
