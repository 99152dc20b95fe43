/* A product in host memory, divided over several GPUs. */
#ifndef SGEMM_SEVERAL_H
#define SGEMM_SEVERAL_H

#include "product.h"

enum { MOST_GPUS = 64 };

/* product_run on each of `count` devices at once, at most MOST_GPUS: each computes rows of its own.
 * Returns when all have finished, with the failure of the first that failed. */
Status several_run(const Product *product, const int *devices, int count);

#endif
