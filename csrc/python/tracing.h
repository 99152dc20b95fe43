/* Module method that counts a kernel's memory accesses. */
#ifndef SGEMM_PYTHON_TRACING_H
#define SGEMM_PYTHON_TRACING_H

#include "python.h"

extern const char trace_doc[];
PyObject *trace(PyObject *module, PyObject *args);

#endif
