/* Estimates how long a product takes here and in the program's own BLAS. */
#ifndef SGEMM_BLAS_ESTIMATE_H
#define SGEMM_BLAS_ESTIMATE_H

#include "request.h"

/* Seconds on a GPU, with the copies of operands and result. */
double estimate_here(const Request *request);

/* Seconds in the program's own BLAS. */
double estimate_own(const Request *request);

/* Learns from a product that took this long. */
void estimate_learn_here(const Request *request, double seconds);
void estimate_learn_own(const Request *request, double seconds);

#endif
