/* Computes one product from checked operands, without Python. */
#ifndef SGEMM_PRODUCT_H
#define SGEMM_PRODUCT_H

#include "../base/variant.h"
#include "device.h"
#include "strided.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out = alpha * A @ B + beta * C, for one product or each of a batch. The caller has checked that
 * shapes agree, that out is not empty and does not overlap itself, and that the device can run the
 * variant. C is ignored when beta is 0. */
typedef struct Product {
    const Variant *variant;
    DeviceKind kind;
    int device; /* its index among devices of this kind; product_run sets it */
    Strided A, B, C, out;
    float alpha, beta;
    int64_t count; /* products in the batch, whose operands are batch_bytes apart; 1: no batch */
    Interrupt interrupt;
    struct Team *team; /* team.h: the threads that compute other rows with the same B, or NULL */
    int member;        /* index in the team */
    bool *out_changed; /* set before the first write to `out`; NULL if nobody asks */
    /* The types in which the kernel takes A and B: their own, or float32. See product_typed. */
    ElementType taken[2];
} Product;

struct Batch; /* batch.h */

/* Computes all products of the batch, with the products, or the rows of a single one, divided over
 * `count` devices. `out` may overlap A, B or C: the result is as if they had been copied first. A
 * and B are not read if alpha or K is 0. After an error, `out` may hold part of the result, and all
 * memory is freed. */
Status product_run(const Product *product, const struct Batch *batch, const int *devices,
                   int count);

/* The same product with K = 0 if alpha or K is 0, so that A and B are not read. */
Product product_as_read(const Product *product);

/* Whether `auto` on the device takes operands of 16 bits as they are. */
bool product_takes_16bit(DeviceKind kind, int index);

/* The product as a device computes it: its operands of 16 bits as they are, if `auto` takes them
 * there. Otherwise they are converted where they are copied. */
Product product_typed(const Product *product, int device);

/* Tells the caller, before the first write, that `out` no longer has its old content. */
static inline void product_changes_out(const Product *product)
{
    if (product->out_changed) {
        __atomic_store_n(product->out_changed, true, __ATOMIC_RELAXED);
    }
}

/* Whether C and out are the same elements in memory. */
bool product_is_in_place(const Product *product);

/* Whether B is A transposed in the same memory. A copy of A, transposed, is then the copy of B
 * (sgemm_is_symmetric), unless the kernel takes only contiguous matrices. */
bool product_is_symmetric(const Product *product);

#ifdef __cplusplus
}
#endif
#endif
