/* One product from checked operands to result: place, launch, bring back. Knows nothing of
 * Python. */
#ifndef SGEMM_PRODUCT_H
#define SGEMM_PRODUCT_H

#include "device.h"
#include "strided.h"
#include "variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out = alpha * A @ B + beta * C. Shapes agree, out is not empty and does not overlap itself,
 * and the variant runs on the kind of device. C is only looked at when beta is not 0. */
typedef struct Product {
    const Variant *variant;
    DeviceKind kind;
    int device; /* its index among devices of its kind; product_run sets it */
    Strided A, B, C, out;
    float alpha, beta;
    Interrupt interrupt;
    struct Team *team; /* team.h: those that compute other rows with the same B; NULL: none */
    int member;        /* of it */
} Product;

/* Computes the product on each of `count` devices of its kind at once, of which each computes rows of
 * its own. `out` may share memory with A, B or C: the result is as if they had been copied first. A and
 * B are not read when alpha is 0 or K is 0. After an error, `out` holds what it held or part of the
 * result, and nothing is left allocated. */
Status product_run(const Product *product, const int *devices, int count);

/* The product as it reads its operands: nothing of A and B when alpha is 0 or K is 0. */
Product product_as_read(const Product *product);

/* Whether C is what out is, element for element. */
bool product_is_in_place(const Product *product);

/* Whether out has memory in common with what is still read when its first elements are written. */
bool product_must_wait(const Product *product);

#ifdef __cplusplus
}
#endif
#endif
