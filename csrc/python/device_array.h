/* DeviceArray: the result of run() that stays on a GPU, for other libraries to take. */
#ifndef SGEMM_DEVICE_ARRAY_H
#define SGEMM_DEVICE_ARRAY_H

#include "../core/strided.h"
#include "../cuda/device_arrays.h"
#include "python.h"

/* Makes the type, which belongs to the module. NULL with an exception set on failure. */
PyObject *device_array_make_type(PyObject *module);

/* A new array of the type, to which one owner's share of the block passes, on failure too. */
PyObject *device_array_new(PyTypeObject *type, DeviceBuffer *block);

/* The block of an array of that type, which stays the array's. */
DeviceBuffer *device_array_block(PyObject *array);

/* Its elements where they lie: the block by rows, or turned. */
Strided device_array_strided(PyObject *array);

#endif
