/* NumPy arrays in pinned memory: results, and the arrays of empty(). */
#ifndef SGEMM_RESULT_H
#define SGEMM_RESULT_H

#include "python.h"

#include "../../runtime/device.h"

/* A new C-contiguous, uninitialised float32 array in pinned memory of the device. In ordinary
 * memory if `device` is NULL or the CPU device, or if no pinned memory is available. NULL with an
 * exception set on failure. */
PyObject *result_array(int dimensions, const npy_intp *shape, const Device *device, int index);

/* Module method empty(shape). */
extern const char empty_doc[];
PyObject *result_empty(PyObject *module, PyObject *shape);

/* Module methods _memory() -> (live, idle, limit) in bytes, _set_memory_limit(bytes),
 * _empty_memory(). */
PyObject *result_memory(PyObject *module, PyObject *ignored);
PyObject *result_set_limit(PyObject *module, PyObject *limit);
PyObject *result_empty_memory(PyObject *module, PyObject *ignored);

#endif
