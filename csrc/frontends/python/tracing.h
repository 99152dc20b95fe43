/* Module methods that count a kernel's memory accesses and name the launched kernels. */
#ifndef SGEMM_PYTHON_TRACING_H
#define SGEMM_PYTHON_TRACING_H

#include "python.h"

extern const char trace_doc[], launched_doc[];
PyObject *trace(PyObject *module, PyObject *args);
PyObject *launched(PyObject *module, PyObject *args);

#endif
