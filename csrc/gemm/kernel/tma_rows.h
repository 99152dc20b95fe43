/* What TMA can load. */
#ifndef SGEMM_KERNELS_TMA_ROWS_H
#define SGEMM_KERNELS_TMA_ROWS_H

#include <stdbool.h>

#include "../../base/sgemm.h"

/* Whether TMA can load tiles of a row-major matrix of floats. A tensor map needs at least one
 * row. */
static inline bool tma_can_load(const Matrix *X)
{
    return X->col_stride == 1 && (uintptr_t)X->data % 16 == 0 && X->row_stride > 0 &&
           X->row_stride % 4 == 0 && X->row_stride < INT64_C(1) << 38 && X->cols <= INT32_MAX &&
           X->rows > 0 && X->rows <= INT32_MAX;
}

/* The same for a row-major matrix of elements of 16 bits. One row has no distance to a next one. */
static inline bool tma_can_load_16bit(const Matrix *X)
{
    const bool rows_apart =
        X->row_stride >= X->cols && X->row_stride % 8 == 0 && X->row_stride < INT64_C(1) << 39;
    return X->col_stride == 1 && (uintptr_t)X->data % 16 == 0 && (X->rows == 1 || rows_apart) &&
           X->cols > 0 && X->cols <= INT32_MAX && X->rows > 0 && X->rows <= INT32_MAX;
}

#endif
