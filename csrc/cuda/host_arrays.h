/* The two ways of a product of arrays in host memory through the current GPU, product->device. They
 * return when out holds the result, and all work in the streams is done. */
#ifndef SGEMM_CUDA_HOST_ARRAYS_H
#define SGEMM_CUDA_HOST_ARRAYS_H

#include "../core/product.h"
#include "streams.h"

/* All operands by one copy, gathered by the calling thread. */
Status multiply_small(const Product *product, Streams *streams);

/* By panels and pieces, which are gathered, copied and computed at a time. *began: whether any piece
 * was, so that out may hold some of the result. */
Status multiply_by_panels(const Product *product, Streams *streams, bool *began);

#endif
