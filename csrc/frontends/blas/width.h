/* Whether a BLAS takes 64-bit integers. */
#ifndef SGEMM_BLAS_WIDTH_H
#define SGEMM_BLAS_WIDTH_H

#include <stdbool.h>

/* Whether functions with plain names, such as sgemm_, take 64-bit integers in the library that has
 * this function. */
bool width_is_64(void *function);

#endif
