/* DeviceArray: a result of run() on a GPU, which other libraries can import. */
#ifndef SGEMM_DEVICE_ARRAY_H
#define SGEMM_DEVICE_ARRAY_H

#include "../../runtime/cuda/device_arrays.h"
#include "../../runtime/view.h"
#include "python.h"

/* Creates the type for the module. NULL with an exception set on failure. */
PyObject *device_array_make_type(PyObject *module);

/* A new C-contiguous array of the type, with that shape. Takes over the caller's share of the
 * block, even on failure. Other libraries get only arrays of float32. */
PyObject *device_array_new(PyTypeObject *type, DeviceBuffer *block, int axes, const int64_t *shape);

/* The block of a DeviceArray; the array keeps its share. */
DeviceBuffer *device_array_block(PyObject *array);

/* Stores the array's elements in device memory. */
void device_array_view(PyObject *array, View *view);

#endif
