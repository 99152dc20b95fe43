/* Module methods that describe the variants, the devices and the build. */
#ifndef SGEMM_PYTHON_DESCRIBING_H
#define SGEMM_PYTHON_DESCRIBING_H

#include "../../base/variant.h"
#include "python.h"

/* The catalog's data for a variant, as a dict. NULL with an exception set on failure. */
PyObject *describe_variant(const Variant *variant);

/* _variants() -> tuple of dict; _devices() -> tuple of dict; _cuda_problem() -> why no GPU can be
 * used, or None; _build_info() -> dict. */
PyObject *describe_variants(PyObject *module, PyObject *ignored);
PyObject *describe_devices(PyObject *module, PyObject *ignored);
PyObject *describe_cuda_problem(PyObject *module, PyObject *ignored);
PyObject *describe_build(PyObject *module, PyObject *ignored);

#endif
