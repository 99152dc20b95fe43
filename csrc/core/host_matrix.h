/* Host memory of our own for a matrix: a packed operand, or a result that is put in place later. */
#ifndef SGEMM_HOST_MATRIX_H
#define SGEMM_HOST_MATRIX_H

#include "sgemm.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Uninitialised memory for a rows x cols matrix, row after row, which the caller frees: matrix->data.
 * After a failure, which speaks of `what`, matrix->data is NULL. */
Status host_matrix_allocate(const char *what, int64_t rows, int64_t cols, Matrix *matrix);

#ifdef __cplusplus
}
#endif
#endif
