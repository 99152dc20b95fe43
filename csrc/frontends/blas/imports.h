/* Which objects call a function of another object by name. */
#ifndef SGEMM_BLAS_IMPORTS_H
#define SGEMM_BLAS_IMPORTS_H

#include <link.h>
#include <stdbool.h>

/* Whether a loaded object refers to the name without defining it. */
bool imports(const struct dl_phdr_info *object, const char *name);

/* The same for the object that is loaded at this address. */
bool imports_at(const void *base, const char *name);

#endif
