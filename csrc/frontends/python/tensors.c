#include "tensors.h"

#include "attributes.h"

/* Whether PyTorch's forward mode is in force, so that tensors may have tangents. */
static bool in_forward_mode(void)
{
    PyObject *const module =
        PyDict_GetItemString(PyImport_GetModuleDict(), "torch.autograd.forward_ad"); /* borrowed */
    PyObject *const level = module ? attribute_of(module, "_current_level") : NULL;
    const bool is_in = level && PyLong_Check(level) && PyLong_AsLong(level) >= 0;
    Py_XDECREF(level);
    return is_in;
}

/* Whether the argument is a view of the negatives of the values in its memory: 1 or 0, or -1 with
 * an exception set. */
static int is_negative_view(PyObject *argument)
{
    PyObject *const method = attribute_of(argument, "is_neg");
    PyObject *const answer = method ? PyObject_CallNoArgs(method) : NULL;
    const int is_negative = answer ? answer == Py_True : PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(answer);
    Py_XDECREF(method);
    return is_negative;
}

bool tensor_is_refused(const char *name, PyObject *argument)
{
    PyObject *const gradient = attribute_of(argument, "requires_grad");
    if (!gradient) {
        return PyErr_Occurred() != NULL;
    }
    const bool required = gradient == Py_True;
    Py_DECREF(gradient);
    const int is_negative = is_negative_view(argument);
    if (is_negative < 0) {
        return true;
    }
    if ((required || is_negative || in_forward_mode()) && tensor_refuse(name, argument)) {
        return true;
    }
    if (required) {
        PyErr_Format(PyExc_ValueError,
                     "%s requires a gradient, but run() computes none: pass %s.detach()", name,
                     name);
    } else if (is_negative) {
        PyErr_Format(PyExc_ValueError,
                     "%s is a view of negated values (is_neg()): pass %s.resolve_neg()", name,
                     name);
    }
    return required || is_negative;
}

/* Calls a function of sgemm_kernels/_tensors.py. */
static bool call(const char *function, const char *name, PyObject *argument)
{
    PyObject *const module = PyImport_ImportModule("sgemm_kernels._tensors");
    PyObject *const answer = !module ? NULL
                             : name  ? PyObject_CallMethod(module, function, "sO", name, argument)
                                     : PyObject_CallMethod(module, function, "O", argument);
    const bool done = answer != NULL;
    Py_XDECREF(answer);
    Py_XDECREF(module);
    return done;
}

bool tensor_refuse(const char *name, PyObject *argument)
{
    return !call("refuse", name, argument);
}

bool tensor_count_write(PyObject *out)
{
    const int is_tensor = PyArray_Check(out) ? 0 : has_attribute(out, "requires_grad");
    return is_tensor == 0 || (is_tensor > 0 && call("count_write", NULL, out));
}
