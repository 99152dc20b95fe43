/* A product of matrices in host memory, divided over several GPUs. */
#ifndef SGEMM_MULTI_GPU_H
#define SGEMM_MULTI_GPU_H

#include "product.h"
#include "team.h"

/* Divides the rows over `count` <= MOST_GPUS devices, which compute concurrently. The product must
 * meet the requirements of Device.multiply. Returns when all devices have finished, with the first
 * failure. */
Status multi_gpu_multiply(const Product *product, const int *devices, int count);

#endif
