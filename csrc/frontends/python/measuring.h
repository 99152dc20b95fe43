/* Module methods that measure kernels and copies on a GPU. */
#ifndef SGEMM_PYTHON_MEASURING_H
#define SGEMM_PYTHON_MEASURING_H

#include "python.h"

extern const char measure_doc[], measure_copies_doc[];
PyObject *measure(PyObject *module, PyObject *args);
PyObject *measure_copies(PyObject *module, PyObject *args);

#endif
