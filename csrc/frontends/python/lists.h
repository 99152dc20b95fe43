/* Helpers to build a tuple item by item, through a list. */
#ifndef SGEMM_PYTHON_LISTS_H
#define SGEMM_PYTHON_LISTS_H

#include <stdbool.h>

#include "python.h"

/* Appends the item and releases the caller's reference to it. False with an exception set if the
 * item is NULL or the append fails. */
static inline bool append(PyObject *list, PyObject *item)
{
    const bool done = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return done;
}

/* Converts the list to a tuple and releases it. NULL if an exception is set. */
static inline PyObject *as_tuple(PyObject *list)
{
    PyObject *const tuple = PyErr_Occurred() ? NULL : PyList_AsTuple(list);
    Py_DECREF(list);
    return tuple;
}

#endif
