/* What happened to the calls, if SGEMM_KERNELS_BLAS_LOG asks for it. */
#ifndef SGEMM_BLAS_LOG_H
#define SGEMM_BLAS_LOG_H

#include "request.h"

/* Notes a call: `what` is "computed here", or why it was passed on. */
void log_note(const Request *request, const char *what, double seconds);

#endif
