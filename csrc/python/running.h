/* A call of run(), its arguments taken apart, from Python's arrays to the result. */
#ifndef SGEMM_PYTHON_RUNNING_H
#define SGEMM_PYTHON_RUNNING_H

#include <stdbool.h>

#include "../core/product.h"
#include "python.h"

/* The arguments; None where an array, device or stream was left out, NULL where alpha or beta was. */
typedef struct {
    const Variant *variant;
    PyObject *A, *B, *C, *alpha, *beta, *out, *device, *stream;
} RunArguments;

/* run(): a new reference to the result, or NULL with an exception set. */
PyObject *run_product(PyObject *module, const RunArguments *arguments);

/* The part of it for arrays that are on a GPU; `product` has the variant, alpha and beta. In
 * running_on_gpu.c. */
PyObject *run_on_gpu(PyObject *module, const RunArguments *arguments, Product *product);

/* Checks C and beta against each other: a beta that is not 0 needs a C, and a C without a beta, which
 * is not added, deserves a warning. Sets an exception and returns false if they do not fit, or if a
 * warning is an error. */
bool beta_fits_c(const RunArguments *arguments, const Product *product);

#endif
