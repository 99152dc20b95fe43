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

/* Sets ValueError: there is no C that beta could multiply. Returns false. */
bool refuse_beta(PyObject *beta);

#endif
