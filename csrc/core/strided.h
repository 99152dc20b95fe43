/* A caller's array as it lies in host memory: any strides, any alignment, either byte order. */
#ifndef SGEMM_STRIDED_H
#define SGEMM_STRIDED_H

#include <stdbool.h>
#include <stdint.h>

#include "sgemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element (i, j) is the four bytes at data + i * row_bytes + j * col_bytes. */
typedef struct {
    char *data;
    int64_t rows, cols;
    int64_t row_bytes, col_bytes; /* may be negative, zero, or not a multiple of four */
    bool swapped;                 /* not in this machine's byte order */
} Strided;

/* If a kernel could read the array where it lies (floats in native order, a stride of one element
 * along one direction), sets *matrix to it and returns true. */
bool strided_as_matrix(const Strided *array, Matrix *matrix);

/* Whether a device's copy of the array is column-major; otherwise it is row-major. */
bool is_column_major(const Strided *array);

/* The same memory as a strided array. */
Strided strided_of_matrix(const Matrix *matrix);

/* The rows x cols elements of the array from (row, col) on. */
Strided strided_part(const Strided *array, int64_t row, int64_t col, int64_t rows, int64_t cols);

/* The array with rows for columns. */
Strided strided_transposed(const Strided *array);

/* Copies every element of `from` to `to`, which has the same shape and shares no memory with it. */
void strided_copy(const Strided *to, const Strided *from);

/* The same for what a device fetches next: written past this core's caches where lines of both lie
 * in one piece and the processor can. All of it is in memory before what the caller writes next. */
void strided_stream(const Strided *to, const Strided *from);

/* Whether the two may share a byte. Never wrongly false. */
bool strided_may_overlap(const Strided *one, const Strided *other);

/* Whether two different elements of the array share a byte. */
bool strided_overlaps_itself(const Strided *array);

#ifdef __cplusplus
}
#endif
#endif
