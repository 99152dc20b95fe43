/* Python's and NumPy's C interfaces, as every file that speaks Python includes them. */
#ifndef SGEMM_PYTHON_H
#define SGEMM_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdio.h> /* which the stable interface leaves out, and NumPy needs */

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL sgemm_kernels_numpy
#ifndef SGEMM_DEFINES_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#endif
