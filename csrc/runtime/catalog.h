/* The ladder as data. */
#ifndef SGEMM_CATALOG_H
#define SGEMM_CATALOG_H

#include "../base/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ladder in order, then the reference library, then simt and auto, then NULL. */
extern const Variant *const catalog[];

/* The variant with that name, or NULL. */
const Variant *catalog_find(const char *name);

/* The same, and also finds two that exist only to be measured: "cublas-tf32", the reference in
 * reduced precision, and "mma_step", one instruction of tensor cores. */
const Variant *catalog_find_measured(const char *name);

/* `auto` for operands of 16 bits, on the devices that can run it. */
extern const Variant variant_auto_16bit;

/* Whether the variant is a call of a library (cublas_open), not a kernel of this package. */
bool variant_is_library(const Variant *variant);

/* An estimate of the float32 multiply-adds per cycle that one multiprocessor of this compute
 * capability reaches on a large product with K = depth. */
double catalog_multiply_adds(const Variant *variant, const int capability[2], int64_t depth);

#ifdef __cplusplus
}
#endif
#endif
