/* run_many(): products of different shapes in one call. */
#ifndef SGEMM_PYTHON_RUNNING_MANY_H
#define SGEMM_PYTHON_RUNNING_MANY_H

#include "python.h"

/* Module function run_many(variant, As, Bs, Cs=None, *, ...). */
PyObject *run_many(PyObject *module, PyObject *args, PyObject *keywords);
extern const char run_many_doc[];

#endif
