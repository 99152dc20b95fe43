/* Lists that are made item by item, and become tuples. */
#ifndef SGEMM_PYTHON_LISTS_H
#define SGEMM_PYTHON_LISTS_H

#include <stdbool.h>

#include "python.h"

/* Appends and gives up the item; false with an exception set if either failed. */
static inline bool append(PyObject *list, PyObject *item)
{
    const bool done = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return done;
}

/* The list as a tuple, the list given up; NULL if an exception is set. */
static inline PyObject *as_tuple(PyObject *list)
{
    PyObject *const tuple = PyErr_Occurred() ? NULL : PyList_AsTuple(list);
    Py_DECREF(list);
    return tuple;
}

#endif
