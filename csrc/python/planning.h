/* Module methods that read and replace the constants of simt's cost model. */
#ifndef SGEMM_PYTHON_PLANNING_H
#define SGEMM_PYTHON_PLANNING_H

#include "python.h"

extern const char plan_constants_doc[], keep_plan_constants_doc[];
PyObject *plan_constants_of(PyObject *module, PyObject *args);
PyObject *keep_plan_constants(PyObject *module, PyObject *args);

#endif
