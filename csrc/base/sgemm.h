/* The problem that every layer solves: C = alpha * A @ B + beta * C, in single precision, for one
 * matrix C or for each matrix of a batch. */
#ifndef SGEMM_SGEMM_H
#define SGEMM_SGEMM_H

#include <stdbool.h>
#include <stdint.h>

/* The default value of a field in C++. In C, an omitted field is zero. */
#ifdef __cplusplus
#define DEFAULT(value) = value
#else
#define DEFAULT(value)
#endif

/* The type of an operand's elements. */
typedef enum { ELEMENT_FLOAT32, ELEMENT_FLOAT16, ELEMENT_BFLOAT16 } ElementType;

static inline int64_t element_bytes(ElementType type)
{
    return type == ELEMENT_FLOAT32 ? 4 : 2;
}

/* A matrix in memory, or the first of a batch. Element (i, j) of matrix n is
 * data[n * batch_stride + i * row_stride + j * col_stride]; strides are in elements and may be
 * negative or zero. The memory belongs to somebody else. */
typedef struct Matrix {
    float *data;
    int64_t rows, cols;
    int64_t row_stride, col_stride;
    int64_t batch_stride DEFAULT(0); /* 0: all matrices of the batch are this one */
} Matrix;

static inline int64_t ceil_div(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

/* The distance between the rows (or columns) of `length` elements in a device's copy of a matrix: a
 * multiple of 4, unless they are shorter than that. */
static inline int64_t leading_dimension(int64_t length)
{
    return length < 4 ? length : (length + 3) / 4 * 4;
}

/* The same for elements of 16 bits: rows begin on 16-byte boundaries, for TMA. */
static inline int64_t leading_dimension_of(ElementType type, int64_t length)
{
    return type == ELEMENT_FLOAT32 ? leading_dimension(length) : (length + 7) / 8 * 8;
}

/* The same for a batch, whose copy has no gaps: one copy of memory moves it. */
static inline int64_t leading_dimension_in(ElementType type, int64_t count, int64_t length)
{
    return count > 1 ? length : leading_dimension_of(type, length);
}

/* The arguments of a kernel. A (M, K) and B (K, N) are only read. Each is row-major or
 * column-major, with any leading dimension: one of its strides is 1. C (M, N) is row-major, does
 * not overlap A or B, and is not read when beta is 0. The matrices C of a batch do not overlap. */
typedef struct Sgemm {
    Matrix A, B, C;
    float alpha, beta;
    int64_t count DEFAULT(1); /* matrices in the batch; 1: one product */
} Sgemm;

/* Whether B is the transposed A in the same memory, so that A @ B is symmetric. */
static inline bool sgemm_is_symmetric(const Sgemm *p)
{
    const Matrix *const A = &p->A, *const B = &p->B;
    return A->data == B->data && A->rows == B->cols && A->cols == B->rows &&
           A->row_stride == B->col_stride && A->col_stride == B->row_stride &&
           (p->count == 1 || A->batch_stride == B->batch_stride);
}

/* Whether it is row-major without gaps between its rows. */
static inline bool matrix_is_contiguous(const Matrix *matrix)
{
    return (matrix->col_stride == 1 || matrix->cols == 1) &&
           (matrix->row_stride == matrix->cols || matrix->rows == 1);
}

/* Whether they differ by their places in memory only. */
static inline bool matrix_is_alike(const Matrix *X, const Matrix *Y)
{
    return X->rows == Y->rows && X->cols == Y->cols && X->row_stride == Y->row_stride &&
           X->col_stride == Y->col_stride;
}

static inline Matrix matrix_in_batch(const Matrix *first, int64_t number)
{
    Matrix matrix = *first;
    matrix.data = matrix.data ? matrix.data + number * matrix.batch_stride : matrix.data;
    return matrix;
}

static inline Matrix matrix_transposed(const Matrix *X)
{
    const Matrix transposed = {X->data,       X->cols,       X->rows,
                               X->col_stride, X->row_stride, X->batch_stride};
    return transposed;
}

/* The problem with the transposed result. */
static inline Sgemm sgemm_transposed(const Sgemm *p)
{
    Sgemm other = *p;
    other.A = matrix_transposed(&p->B);
    other.B = matrix_transposed(&p->A);
    other.C = matrix_transposed(&p->C);
    return other;
}

/* The address of an element of a matrix whose elements have this type (Launch::elements). */
static inline float *address_of_element(const Matrix *first, int64_t number, ElementType type)
{
    return (float *)((char *)first->data + number * element_bytes(type));
}

/* matrix_in_batch for such a matrix. */
static inline Matrix typed_in_batch(const Matrix *first, int64_t number, ElementType type)
{
    Matrix matrix = *first;
    matrix.data =
        matrix.data ? address_of_element(first, number * first->batch_stride, type) : matrix.data;
    return matrix;
}

/* `count` products of a batch, from number `first` on. */
static inline Sgemm part_of_batch(const Sgemm *batch, int64_t first, int64_t count)
{
    Sgemm part = *batch;
    part.A = matrix_in_batch(&batch->A, first);
    part.B = matrix_in_batch(&batch->B, first);
    part.C = matrix_in_batch(&batch->C, first);
    part.count = count;
    return part;
}

#endif
