/* Finds the functions of the program's own BLAS. */
#ifndef SGEMM_BLAS_OWN_BLAS_H
#define SGEMM_BLAS_OWN_BLAS_H

#include "request.h"

/* The program's own function of that name, for the code that calls it. Its function is NULL if the
 * program has no BLAS. */
Own own_function(Entry entry, const void *caller);

/* Whether the code is in the library of the function. */
bool own_contains(const Own *own, const void *code);

#endif
