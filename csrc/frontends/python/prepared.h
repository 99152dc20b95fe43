/* PreparedMatrix: a matrix B that is split into fp16 pairs once, for many products. */
#ifndef SGEMM_PYTHON_PREPARED_H
#define SGEMM_PYTHON_PREPARED_H

#include <stdbool.h>

#include "python.h"
#include "running.h"

/* Creates the type for the module. NULL with an exception set on failure. */
PyObject *prepared_make_type(PyObject *module);

/* If B is a PreparedMatrix, replaces it by its array and sets the device and the pairs. Sets an
 * exception and returns false if the variant or the device cannot use it. */
bool prepared_replace(PyObject *module, RunArguments *arguments);

/* Whether neither A nor C nor out is a PreparedMatrix. Sets TypeError if one is. */
bool prepared_is_only_B(PyObject *module, const RunArguments *arguments);

/* Whether a prepared B is on a GPU and A, C and out are arrays of NumPy. */
bool prepared_is_far(const RunArguments *arguments);

/* Computes such a product: copies the operands to B's GPU, and the result back. */
PyObject *prepared_run_far(PyObject *module, const RunArguments *arguments);

/* Module function prepare(B, *, device=None). */
PyObject *prepare(PyObject *module, PyObject *args, PyObject *keywords);
extern const char prepare_doc[];

#endif
