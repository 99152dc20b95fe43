/* Finds the functions of the program's own BLAS. */
#ifndef SGEMM_BLAS_OWN_BLAS_H
#define SGEMM_BLAS_OWN_BLAS_H

#include "request.h"

/* The program's own function of that name. If there is none, prints what to do and aborts, because
 * the caller has no way to receive an error. */
void *own_function(Entry entry, const void *caller);

/* Whether plain names of the library that has this function take 64-bit integers, as in Debian's
 * libopenblas64 and libblas64. */
bool own_is_wide(void *function);

#endif
