/* Batches in host memory, on GPUs. */
#ifndef SGEMM_BATCH_PIECES_H
#define SGEMM_BATCH_PIECES_H

#include "product.h"

/* Computes a batch, product->count > 1, on these GPUs. */
Status batch_pieces_multiply(const Product *product, const int *devices, int count);

#endif
