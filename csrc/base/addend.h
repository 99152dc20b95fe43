/* C of alpha * A @ B + beta * C, if it is another matrix than the result: a bias, for example. */
#ifndef SGEMM_ADDEND_H
#define SGEMM_ADDEND_H

#include "variant.h"

/* Kernels with KernelSpec::reads_addend read it instead of the result's old values. */
typedef struct Addend {
    Matrix matrix; /* any strides; overlaps no result. The first one of a batch */
    int64_t first; /* its number in the batch that `copy` counts in */
    /* Copies `count` of them to their results, for a kernel that reads old values there. */
    Status (*copy)(void *context, int64_t first, int64_t count);
    void *context;
} Addend;

static inline Status addend_copy(const Launch *where, int64_t count)
{
    const Addend *const addend = where->addend;
    return addend ? addend->copy(addend->context, addend->first, count) : status_ok();
}

/* Sets *part to the addend of a batch's products from number `first` on, and returns how they are
 * launched. */
static inline Launch addend_part(const Launch *where, int64_t first, Addend *part)
{
    Launch of_part = *where;
    if (where->addend) {
        *part = *where->addend;
        part->matrix = matrix_in_batch(&part->matrix, first);
        part->first += first;
        of_part.addend = part;
    }
    return of_part;
}

/* The matrix that beta multiplies. */
static inline Matrix addend_or(const Launch *where, const Matrix *C)
{
    return where->addend ? where->addend->matrix : *C;
}

#endif
