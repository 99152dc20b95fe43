/* Includes the C APIs of Python and NumPy, with the settings that all files share. */
#ifndef SGEMM_PYTHON_H
#define SGEMM_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdio.h> /* NumPy needs it, and Python.h does not include it under the stable ABI */

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL sgemm_kernels_numpy
#ifndef SGEMM_DEFINES_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#endif
