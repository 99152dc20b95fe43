/* What happened to the calls, if SGEMM_KERNELS_BLAS_LOG asks for it. */
#ifndef SGEMM_BLAS_LOG_H
#define SGEMM_BLAS_LOG_H

#include "request.h"

/* Notes a call: computed here, or passed on for a reason. */
void log_note(const Request *request, bool here, const char *what, double duration);

#endif
