/* A libsgemm_kernels_blas.so that was loaded before this module. */
#ifndef SGEMM_PYTHON_PRELOADED_H
#define SGEMM_PYTHON_PRELOADED_H

/* Offers this module's engine to it, if there is one. */
void preloaded_offer_engine(void);

#endif
