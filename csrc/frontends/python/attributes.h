/* Reads optional attributes. AttributeError means that an attribute is missing; any other exception
 * from the object is passed on to the caller. */
#ifndef SGEMM_PYTHON_ATTRIBUTES_H
#define SGEMM_PYTHON_ATTRIBUTES_H

#include "python.h"

/* The attribute as a new reference. NULL without an exception if it is missing; NULL with the
 * exception set if reading it raised another exception than AttributeError. */
static inline PyObject *attribute_of(PyObject *object, const char *name)
{
    PyObject *const value = PyObject_GetAttrString(object, name);
    if (!value && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return value;
}

/* Whether the object has the attribute: 1 or 0, or -1 with an exception set. */
static inline int has_attribute(PyObject *object, const char *name)
{
    PyObject *const value = attribute_of(object, name);
    Py_XDECREF(value);
    return value ? 1 : PyErr_Occurred() ? -1 : 0;
}

#endif
