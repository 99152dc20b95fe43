/* A caller's array in host memory: any strides, any alignment, either byte order. */
#ifndef SGEMM_STRIDED_H
#define SGEMM_STRIDED_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/sgemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix, or the first of a batch. Element (i, j) of matrix n begins at data + n * batch_bytes +
 * i * row_bytes + j * col_bytes. */
typedef struct Strided {
    char *data;
    int64_t rows, cols;
    int64_t row_bytes, col_bytes;   /* may be negative, zero, or not whole elements */
    bool swapped;                   /* in the opposite of this machine's byte order */
    int64_t batch_bytes DEFAULT(0); /* 0: all matrices of the batch are this one */
    ElementType type DEFAULT(ELEMENT_FLOAT32);
} Strided;

/* If a kernel can read the array without a copy (aligned floats in native byte order, one stride of
 * one element), sets *matrix to it and returns true. */
bool strided_as_matrix(const Strided *array, Matrix *matrix);

/* The same for a kernel that takes elements of this type: strides count them, and `data` is the
 * address of the first one. False if the array has elements of another type. */
bool strided_as_typed(const Strided *array, ElementType type, Matrix *matrix);

/* If a kernel can read C there (addend.h), sets *matrix to it and returns true: aligned floats in
 * native byte order, with rows or columns that are the same, or with contiguous rows. */
bool strided_as_addend(const Strided *array, Matrix *matrix);

/* Whether a device's copy of the array is column-major; otherwise it is row-major. */
bool is_column_major(const Strided *array);

/* The same memory as a strided array. */
Strided strided_of_matrix(const Matrix *matrix);
Strided strided_of_typed(const Matrix *matrix, ElementType type);

/* The rows x cols submatrix that starts at (row, col). */
Strided strided_part(const Strided *array, int64_t row, int64_t col, int64_t rows, int64_t cols);

/* The matrix of a batch with a given number, and those after it. */
Strided strided_in_batch(const Strided *first, int64_t number);

/* The transposed array, in the same memory. */
Strided strided_transposed(const Strided *array);

/* If the matrices of a batch follow each other like the rows of one matrix, sets *joined to it and
 * returns true. */
bool strided_join(const Strided *array, int64_t count, Strided *joined);

/* Whether the array is row-major without gaps. */
bool strided_is_dense(const Strided *array);

/* Copies every element of `from` to `to`, which has the same shape and shares no memory with it.
 * `to` has the same type, or is float32. */
void strided_copy(const Strided *to, const Strided *from);

/* The same for data that a device reads next. Contiguous rows are written with non-temporal stores
 * if the processor has them. The copy is visible in memory before the caller's later stores. */
void strided_stream(const Strided *to, const Strided *from);

/* From the first byte of an array to the one after the last. */
typedef struct {
    uintptr_t first, end;
} Extent;

/* Of a matrix that is not empty. */
Extent strided_extent(const Strided *array);

/* Extends it to `length` of them, `bytes` apart. */
void extent_repeat(Extent *extent, int64_t length, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
