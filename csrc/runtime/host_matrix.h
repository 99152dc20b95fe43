/* Temporary host memory for a matrix: a packed operand, or a result that is copied to `out`
 * later. */
#ifndef SGEMM_HOST_MATRIX_H
#define SGEMM_HOST_MATRIX_H

#include "../base/sgemm.h"
#include "../base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates uninitialised memory for a row-major rows x cols matrix. The caller frees matrix->data,
 * which is NULL after a failure. `what` names the matrix in the message. */
Status host_matrix_allocate(const char *what, int64_t rows, int64_t cols, Matrix *matrix);

#ifdef __cplusplus
}
#endif
#endif
