#include "operand.h"

#include <string.h>

#include "attributes.h"

/* Whether the argument is a masked array: 1 or 0, or -1 with an exception set. */
static int is_masked(PyObject *argument)
{
    if (PyArray_CheckExact(argument)) {
        return 0;
    }
    /* If the module was never imported, there are no masked arrays. */
    PyObject *const module = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy.ma");
    PyObject *const type = module ? attribute_of(module, "MaskedArray") : NULL;
    const int masked = type ? PyObject_IsInstance(argument, type) : PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(type);
    return masked;
}

/* numpy.asarray does not convert sparse matrices: these methods do. Not every library has both. */
static const char *const to_dense[] = {"toarray", "todense"};

static void refuse_type(PyObject *argument, const char *name)
{
    PyObject *const type = PyType_GetName(Py_TYPE(argument));
    int way = 0, found = 0;
    while (way < 2 && (found = has_attribute(argument, to_dense[way])) == 0) {
        ++way;
    }
    if (!type || found < 0) {
        Py_XDECREF(type);
        return;
    }
    const char *const rule = "must be a numpy.ndarray of float32, but has type";
    if (strcmp(name, "out") == 0) {
        PyErr_Format(PyExc_TypeError,
                     "out %s %U: pass numpy.empty((A.shape[0], B.shape[1]), numpy.float32)", rule,
                     type);
    } else {
        PyErr_Format(PyExc_TypeError, "%s %s %U: pass numpy.asarray(%s%s%s%s, dtype=numpy.float32)",
                     name, rule, type, name, found ? "." : "", found ? to_dense[way] : "",
                     found ? "()" : "");
    }
    Py_DECREF(type);
}

static void refuse_dtype(PyArrayObject *array, const char *name)
{
    PyObject *const dtype = (PyObject *)PyArray_DESCR(array);
    const char *const rule = "but run() takes only float32 and never converts silently: pass";
    if (strcmp(name, "out") == 0) {
        PyErr_Format(PyExc_TypeError, "out has dtype %S, %s numpy.empty(out.shape, numpy.float32)",
                     dtype, rule);
    } else {
        PyErr_Format(PyExc_TypeError, "%s has dtype %S, %s %s%s.astype(numpy.float32)", name, dtype,
                     rule, name, PyArray_ISCOMPLEX(array) ? ".real" : "");
    }
}

void operand_refuse_shape(PyObject *shape, const char *name)
{
    const long dimensions = (long)PyTuple_Size(shape);
    if (dimensions == 0) {
        PyErr_Format(PyExc_ValueError,
                     "%s has no dimensions, but a matrix has 2: pass %s.reshape(1, 1)", name, name);
    } else if (dimensions == 1) {
        PyErr_Format(PyExc_ValueError,
                     "%s has 1 dimension, shape %S, but a matrix has 2: pass %s[numpy.newaxis, :] "
                     "for a row or %s[:, numpy.newaxis] for a column",
                     name, shape, name, name);
    } else {
        PyErr_Format(PyExc_ValueError,
                     "%s has %ld dimensions, shape %S, but a matrix has 2: pass one matrix at a "
                     "time, such as %s[0], or %s.reshape(-1, %s.shape[-1])",
                     name, dimensions, shape, name, name, name);
    }
}

/* Whether the argument is a NumPy array of float32, of any shape. Sets TypeError if not. */
static bool is_of_floats(PyObject *argument, const char *name)
{
    if (!PyArray_Check(argument)) {
        refuse_type(argument, name);
        return false;
    }
    const int masked = is_masked(argument);
    if (masked > 0) {
        PyErr_Format(PyExc_TypeError,
                     "%s is a masked array, and run() would ignore the mask: pass %s.filled(0)",
                     name, name);
    }
    if (masked) {
        return false;
    }
    if (PyArray_TYPE((PyArrayObject *)argument) != NPY_FLOAT) {
        refuse_dtype((PyArrayObject *)argument, name);
        return false;
    }
    return true;
}

/* Describes an array of float32. Sets ValueError and returns false if it is not a matrix. */
static bool is_matrix(PyObject *argument, const char *name, Strided *array)
{
    PyArrayObject *const source = (PyArrayObject *)argument;
    if (PyArray_NDIM(source) != 2) {
        PyObject *const shape = PyObject_GetAttrString(argument, "shape");
        if (shape) {
            operand_refuse_shape(shape, name);
            Py_DECREF(shape);
        }
        return false;
    }
    *array = (Strided){.data = PyArray_BYTES(source),
                       .rows = PyArray_DIM(source, 0),
                       .cols = PyArray_DIM(source, 1),
                       .row_bytes = PyArray_STRIDE(source, 0),
                       .col_bytes = PyArray_STRIDE(source, 1),
                       .swapped = PyArray_ISBYTESWAPPED(source)};
    return true;
}

bool operand_array(PyObject *argument, const char *name, Strided *array)
{
    return is_of_floats(argument, name) && is_matrix(argument, name, array);
}

bool operand_refuse_bias(int64_t rows, int64_t cols, int dimensions, const int64_t *shape,
                         const char *broadcast_call)
{
    if (dimensions > 2) {
        return false;
    }
    const int64_t across = dimensions > 0 ? shape[dimensions - 1] : 1;
    const int64_t down = dimensions == 2 ? shape[0] : 1;
    const bool broadcasts = (down == 1 || down == rows) && (across == 1 || across == cols);
    const bool is_column = dimensions == 1 && across == rows;
    if (!broadcasts && !is_column) {
        return false;
    }
    char found[48];
    if (dimensions == 2) {
        PyOS_snprintf(found, sizeof found, "(%lld, %lld)", (long long)down, (long long)across);
    } else if (dimensions == 1) {
        PyOS_snprintf(found, sizeof found, "(%lld,)", (long long)across);
    } else {
        PyOS_snprintf(found, sizeof found, "()");
    }
    PyErr_Format(
        PyExc_ValueError,
        "C has shape %s but the result is (%lld, %lld): pass %s%s, (%lld, %lld))%s", found,
        (long long)rows, (long long)cols, broadcast_call, broadcasts ? "" : "[:, None]",
        (long long)rows, (long long)cols,
        broadcasts && is_column && across > 1
            ? " to add C to each row; write C[:, None] instead of C to add it to each column"
            : "");
    return true;
}

bool operand_c(PyObject *argument, const Strided *A, const Strided *B, Strided *array)
{
    if (!is_of_floats(argument, "C")) {
        return false;
    }
    PyArrayObject *const source = (PyArrayObject *)argument;
    const int dimensions = PyArray_NDIM(source);
    int64_t shape[2];
    for (int axis = 0; axis < dimensions && axis < 2; ++axis) {
        shape[axis] = PyArray_DIM(source, axis);
    }
    const bool fits = dimensions == 2 && shape[0] == A->rows && shape[1] == B->cols;
    if (!fits && operand_refuse_bias(A->rows, B->cols, dimensions, shape, "numpy.broadcast_to(C")) {
        return false;
    }
    return is_matrix(argument, "C", array) && operand_has_result_shape(array, "C", A, B, true);
}

bool operand_shapes_agree(const Strided *A, const Strided *B)
{
    if (A->cols == B->rows) {
        return true;
    }
    const char *const remedy = A->cols == B->cols   ? "pass B.T"
                               : A->rows == B->rows ? "pass A.T"
                                                    : "pass matrices with A.shape[1] == B.shape[0]";
    PyErr_Format(
        PyExc_ValueError,
        "A is (%lld, %lld) and B is (%lld, %lld): A's %lld columns must match B's %lld rows: %s",
        (long long)A->rows, (long long)A->cols, (long long)B->rows, (long long)B->cols,
        (long long)A->cols, (long long)B->rows, remedy);
    return false;
}

bool operand_has_result_shape(const Strided *array, const char *name, const Strided *A,
                              const Strided *B, bool is_numpys)
{
    const long long rows = A->rows, cols = B->cols;
    if (array->rows == rows && array->cols == cols) {
        return true;
    }
    if (!is_numpys) {
        PyErr_Format(
            PyExc_ValueError,
            "%s is (%lld, %lld) but the result is (%lld, %lld): pass an array of that shape", name,
            (long long)array->rows, (long long)array->cols, rows, cols);
    } else {
        PyErr_Format(PyExc_ValueError,
                     "%s is (%lld, %lld) but the result is (%lld, %lld): pass an array of that "
                     "shape, such as numpy.%s((%lld, %lld), numpy.float32)",
                     name, (long long)array->rows, (long long)array->cols, rows, cols,
                     strcmp(name, "C") == 0 ? "zeros" : "empty", rows, cols);
    }
    return false;
}

bool operand_is_writable(bool read_only, const Strided *out, bool is_numpys)
{
    if (read_only) {
        PyErr_Format(PyExc_ValueError, "out is read-only: pass a writable array%s",
                     is_numpys ? ", such as numpy.empty_like(out)" : ", or omit out");
        return false;
    }
    if (strided_overlaps_itself(out)) {
        PyErr_Format(PyExc_ValueError,
                     "elements of out share memory (its strides are %lld and %lld bytes): pass an "
                     "array without overlapping elements%s",
                     (long long)out->row_bytes, (long long)out->col_bytes,
                     is_numpys ? ", such as numpy.empty(out.shape, numpy.float32)" : "");
        return false;
    }
    return true;
}
