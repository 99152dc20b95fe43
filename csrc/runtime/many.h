/* Products of different shapes, computed by one call. */
#ifndef SGEMM_MANY_H
#define SGEMM_MANY_H

#include "product.h"

#ifdef __cplusplus
extern "C" {
#endif

/* STATUS_INVALID, with a message that names them, if the `out` of two products may share memory. */
Status many_check_outs(const Product *products, int64_t count);

/* Sets waits[n] if product n must not write its `out` before all products have read their operands:
 * it may share memory with an operand, except a C in place. No two `out` share memory. */
Status many_find_waiting(const Product *products, int64_t count, bool *waits);

/* Computes all products of matrices in host memory, as product_run does each of them. The products
 * have the same variant and kind, and no two `out` share memory. Empty ones are skipped. */
Status many_run(const Product *products, int64_t count, const int *devices, int device_count);

#ifdef __cplusplus
}
#endif
#endif
