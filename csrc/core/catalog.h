/* The ladder as data. */
#ifndef SGEMM_CATALOG_H
#define SGEMM_CATALOG_H

#include "variant.h"

/* The ladder in order, then the reference, then the choices, then NULL. */
extern const Variant *const catalog[];

/* The variant of that name, or NULL. */
const Variant *catalog_find(const char *name);

/* Likewise, or the reference in reduced precision, "cublas-tf32", which is there to be measured. */
const Variant *catalog_find_measured(const char *name);

#endif
