/* C of alpha * A @ B + beta * C, if it is not the result's matrix: for example a bias, whose rows
 * are all the same. */
#ifndef SGEMM_ADDEND_H
#define SGEMM_ADDEND_H

#include "variant.h"

/* Kernels with KernelSpec::reads_addend read it instead of the result's old values. */
typedef struct Addend {
    Matrix matrix; /* any strides; overlaps no result */
    /* Copies it to the result, for a kernel that reads old values there. */
    Status (*copy)(void *context);
    void *context;
} Addend;

static inline Status addend_copy(const Launch *where)
{
    return where->addend ? where->addend->copy(where->addend->context) : status_ok();
}

#endif
