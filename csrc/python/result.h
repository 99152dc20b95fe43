/* Arrays in pinned memory, as Python sees them: results, and what empty() gives. */
#ifndef SGEMM_RESULT_H
#define SGEMM_RESULT_H

#include "python.h"

#include "../core/device.h"

/* A new C-contiguous float32 array, uninitialised, in pinned memory of the device; in ordinary memory
 * where `device` is NULL or uses the host's, or pinned memory is not to be had. NULL with an
 * exception set on failure. */
PyObject *result_array(int dimensions, const npy_intp *shape, const Device *device, int index);

/* empty(shape), a method of the module. */
extern const char empty_doc[];
PyObject *result_empty(PyObject *module, PyObject *shape);

/* _memory() -> (live, idle, limit) in bytes; _set_memory_limit(bytes); _empty_memory(). */
PyObject *result_memory(PyObject *module, PyObject *ignored);
PyObject *result_set_limit(PyObject *module, PyObject *limit);
PyObject *result_empty_memory(PyObject *module, PyObject *ignored);

#endif
