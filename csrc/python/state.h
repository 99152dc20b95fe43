/* The module's state: its exceptions, and the type of results on a GPU. */
#ifndef SGEMM_PYTHON_STATE_H
#define SGEMM_PYTHON_STATE_H

#include "python.h"

typedef struct {
    PyObject *Error;
    PyObject *DeviceError;
    PyObject *OutOfMemoryError;
    PyObject *UnsupportedVariantError;
    PyObject *DeviceArray;
} State;

static inline State *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

#endif
