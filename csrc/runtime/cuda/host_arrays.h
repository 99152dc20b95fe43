/* Products of arrays in host memory on the current GPU, product->device. Both functions return when
 * out holds the result and all work in the streams is done. */
#ifndef SGEMM_CUDA_HOST_ARRAYS_H
#define SGEMM_CUDA_HOST_ARRAYS_H

#include "../product.h"
#include "streams.h"

/* The calling thread gathers all operands into one buffer for a single copy. */
Status multiply_small(const Product *product, Streams *streams);

/* In panels: gathering, copies and kernels overlap. *began is true if any step was queued, so that
 * out may hold part of the result. */
Status multiply_by_panels(const Product *product, Streams *streams, bool *began);

#endif
