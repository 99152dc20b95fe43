/* The ladder as data. */
#ifndef SGEMM_CATALOG_H
#define SGEMM_CATALOG_H

#include "variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ladder in order, then the reference, then the choices, then NULL. */
extern const Variant *const catalog[];

/* The variant of that name, or NULL. */
const Variant *catalog_find(const char *name);

/* Likewise, or the reference in reduced precision, "cublas-tf32", which is there to be measured. */
const Variant *catalog_find_measured(const char *name);

/* Multiply-adds of float32, about, that a multiprocessor of a GPU of this compute capability does in a
 * cycle of a large product of this depth. */
double catalog_multiply_adds(const Variant *variant, const int capability[2], int64_t depth);

#ifdef __cplusplus
}
#endif
#endif
