/* Attributes that an object may lack. An exception that is not for the lack of one is the caller's: it
 * says what went wrong inside the object. */
#ifndef SGEMM_PYTHON_ATTRIBUTES_H
#define SGEMM_PYTHON_ATTRIBUTES_H

#include "python.h"

/* The attribute; NULL where there is none, or with an exception set where reading it raised another
 * than AttributeError. */
static inline PyObject *attribute_of(PyObject *object, const char *name)
{
    PyObject *const value = PyObject_GetAttrString(object, name);
    if (!value && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return value;
}

/* Whether there is such an attribute: 1 or 0, or -1 with that exception set. */
static inline int has_attribute(PyObject *object, const char *name)
{
    PyObject *const value = attribute_of(object, name);
    Py_XDECREF(value);
    return value ? 1 : PyErr_Occurred() ? -1 : 0;
}

#endif
