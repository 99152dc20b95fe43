/* A call of run(), from its parsed arguments to the result. */
#ifndef SGEMM_PYTHON_RUNNING_H
#define SGEMM_PYTHON_RUNNING_H

#include <stdbool.h>

#include "../core/product.h"
#include "python.h"

/* The arguments. An omitted array, device or stream is None; an omitted alpha or beta is NULL. */
typedef struct {
    const Variant *variant;
    PyObject *A, *B, *C, *alpha, *beta, *out, *device, *stream;
    struct DeviceBuffer *pairs; /* of a prepared B: its fp16 pairs; NULL without any */
    bool is_prepared;
} RunArguments;

/* Runs the call. A new reference to the result, or NULL with an exception set. */
PyObject *run_product(PyObject *module, const RunArguments *given);

/* The same for arrays on a GPU; in running_on_gpu.c. `product` already has the variant, alpha and
 * beta. */
PyObject *run_on_gpu(PyObject *module, const RunArguments *arguments, Product *product);

/* Checks that beta and C fit. A beta that is not 0 needs a C. A C without a beta is ignored, with a
 * warning. Sets an exception and returns false if they do not fit, or if warnings are errors. */
bool beta_fits_c(const RunArguments *arguments, const Product *product);

/* For operands in host memory: sets an exception and returns false if there is a stream. */
bool run_has_no_stream(const RunArguments *arguments);

#endif
