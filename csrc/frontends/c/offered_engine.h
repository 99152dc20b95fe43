/* How the Python extension offers its functions to a preloaded libsgemm_kernels_blas.so. */
#ifndef SGEMM_OFFERED_ENGINE_H
#define SGEMM_OFFERED_ENGINE_H

#include "sgemm_kernels.h"

/* The functions that libsgemm_kernels_blas.so needs. */
typedef struct {
    __typeof__(sgemm_kernels_find_device) *find_device;
    __typeof__(sgemm_kernels_multiply) *multiply;
    __typeof__(sgemm_kernels_allocate) *allocate;
    __typeof__(sgemm_kernels_free) *free;
} Engine;

/* A function of libsgemm_kernels_blas.so. Until it has opened a device, it takes these functions
 * instead of those of libsgemm_kernels.so, so that products find the arrays that Python pinned. The
 * last figure is the version of SGEMM_KERNELS_0. */
typedef void OfferEngine(const Engine *engine);
#define OFFER_ENGINE "sgemm_kernels_blas_offer_0"

#endif
