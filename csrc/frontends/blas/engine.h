/* libsgemm_kernels.so, opened when a product is to be computed here. */
#ifndef SGEMM_BLAS_ENGINE_H
#define SGEMM_BLAS_ENGINE_H

#include "request.h"

/* Whether the device can be used: opens the library and the device the first time. False with the
 * reason in *why, also while another thread opens them. */
bool engine_is_open(const char **why);

/* Computes the product. False with the reason in status->message if it failed; C is then unchanged,
 * unless status->out_changed. */
bool engine_compute(const Request *request, sgemm_kernels_status *status);

/* Computes the product on the CPU device, whether another device can be used or not. */
bool engine_compute_on_cpu(const Request *request, sgemm_kernels_status *status);

/* Opens nothing any more: the device has failed. */
void engine_give_up(const char *why);

#endif
