/* A product in host memory, divided over several GPUs. */
#ifndef SGEMM_MULTI_GPU_H
#define SGEMM_MULTI_GPU_H

#include "product.h"
#include "team.h"

/* Has each of `count` devices, at most MOST_GPUS, multiply rows of its own, at once. The product is as
 * Device.multiply takes it. Returns when all have finished, with the failure of the first that
 * failed. */
Status multi_gpu_multiply(const Product *product, const int *devices, int count);

#endif
