#include "operand.h"

#include <string.h>

#include "../../runtime/overlap.h"
#include "attributes.h"
#include "element.h"

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

/* Whether numpy.asarray may make an array with dimensions of the argument. */
static int may_be_array(PyObject *argument)
{
    if (PyUnicode_Check(argument) || PyBytes_Check(argument) ||
        PyArray_IsScalar(argument, Generic)) {
        return 0;
    }
    return PyObject_CheckBuffer(argument) || PySequence_Check(argument)
               ? 1
               : has_attribute(argument, "__array__");
}

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
    } else if (found || may_be_array(argument) > 0) {
        PyErr_Format(PyExc_TypeError, "%s %s %U: pass numpy.asarray(%s%s%s%s, dtype=numpy.float32)",
                     name, rule, type, name, found ? "." : "", found ? to_dense[way] : "",
                     found ? "()" : "");
    } else if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError,
                     "%s %s %U: pass a matrix, such as numpy.ones((2, 2), "
                     "numpy.float32)",
                     name, rule, type);
    }
    Py_DECREF(type);
}

static void refuse_dtype(PyArrayObject *array, const char *name, bool any_type)
{
    PyObject *const dtype = (PyObject *)PyArray_DESCR(array);
    const char *const rule = element_rule(any_type ? name : "");
    if (strcmp(name, "out") == 0) {
        PyErr_Format(PyExc_TypeError, "out has dtype %S, %s numpy.empty(out.shape, numpy.float32)",
                     dtype, rule);
    } else {
        PyErr_Format(PyExc_TypeError, "%s has dtype %S, %s %s%s.astype(numpy.float32)", name, dtype,
                     rule, name, PyArray_ISCOMPLEX(array) ? ".real" : "");
    }
}

/* Whether the argument is a NumPy array, of any shape, of float32 or with any_type of a type that
 * run() takes as A and B. Sets TypeError if not. */
static bool is_of_floats(PyObject *argument, const char *name, bool any_type, View *view)
{
    if (!PyArray_Check(argument)) {
        refuse_type(argument, name);
        return false;
    }
    const int masked = is_masked(argument);
    if (masked > 0) {
        const bool converts = !element_of_array((PyArrayObject *)argument, any_type, view);
        PyErr_Format(PyExc_TypeError,
                     "%s is a masked array, and run() would ignore the mask: pass %s.filled(0)%s",
                     name, name, converts ? ".astype(numpy.float32)" : "");
    }
    if (masked) {
        return false;
    }
    if (!element_of_array((PyArrayObject *)argument, any_type, view)) {
        refuse_dtype((PyArrayObject *)argument, name, any_type);
        return false;
    }
    return true;
}

static bool view_array(PyObject *argument, const char *name, bool any_type, View *view)
{
    if (!is_of_floats(argument, name, any_type, view)) {
        return false;
    }
    PyArrayObject *const array = (PyArrayObject *)argument;
    view->data = PyArray_BYTES(array);
    view->axes = PyArray_NDIM(array);
    view->swapped = PyArray_ISBYTESWAPPED(array);
    for (int axis = 0; axis < view->axes; ++axis) {
        view->shape[axis] = PyArray_DIM(array, axis);
        view->bytes[axis] = PyArray_STRIDE(array, axis);
    }
    return true;
}

bool operand_array(PyObject *argument, const char *name, View *view)
{
    return view_array(argument, name, false, view);
}

bool operand_of_run(PyObject *argument, const char *name, View *view)
{
    return view_array(argument, name, element_may_have_16_bits(name), view);
}

PyObject *operand_tuple(int count, const int64_t *entries)
{
    PyObject *const tuple = PyTuple_New(count);
    bool done = tuple != NULL;
    for (int index = 0; done && index < count; ++index) {
        PyObject *const entry = PyLong_FromLongLong(entries[index]);
        done = entry && PyTuple_SetItem(tuple, index, entry) == 0;
    }
    if (!done) {
        Py_XDECREF(tuple);
        return NULL;
    }
    return tuple;
}

/* ------------------------------------------------------------------ A and B */

/* The axis of A, or of B, that is summed over. */
static int depth_axis(const View *view, bool is_A)
{
    return is_A || view->axes == 1 ? view->axes - 1 : view->axes - 2;
}

static const char *name_of_depth(const View *view, bool is_A)
{
    return view->axes == 1 ? "elements" : is_A ? "columns" : "rows";
}

/* Sets ValueError: K of A and B differ. */
static void refuse_depths(const View *A, const View *B)
{
    const int of_A = depth_axis(A, true), of_B = depth_axis(B, false);
    const bool matrices = A->axes == 2 && B->axes == 2, vectors = A->axes == 1 || B->axes == 1;
    const char *remedy = matrices  ? "pass matrices with A.shape[1] == B.shape[0]"
                         : vectors ? "pass arrays with the same K"
                                   : "pass arrays with A.shape[-1] == B.shape[-2]";
    if (!vectors && A->shape[of_A] == B->shape[B->axes - 1]) {
        remedy = B->axes == 2 ? "pass B.T" : "pass B.mT";
    } else if (!vectors && A->shape[A->axes - 2] == B->shape[of_B]) {
        remedy = A->axes == 2 ? "pass A.T" : "pass A.mT";
    }
    PyObject *const shape_A = operand_tuple(A->axes, A->shape), *const shape_B = operand_tuple(
                                                                    B->axes, B->shape);
    if (shape_A && shape_B) {
        PyErr_Format(PyExc_ValueError,
                     "A is %S and B is %S: A's %lld %s must match B's %lld %s: %s", shape_A,
                     shape_B, (long long)A->shape[of_A], name_of_depth(A, true),
                     (long long)B->shape[of_B], name_of_depth(B, false), remedy);
    }
    Py_XDECREF(shape_A);
    Py_XDECREF(shape_B);
}

/* Sets ValueError: the leading axes of A and B cannot be broadcast. */
static void refuse_leading(const View *A, const View *B)
{
    PyObject *const shape_A = operand_tuple(A->axes, A->shape), *const shape_B = operand_tuple(
                                                                    B->axes, B->shape);
    if (shape_A && shape_B) {
        PyErr_Format(PyExc_ValueError,
                     "A is %S and B is %S: the dimensions before the last two cannot be broadcast "
                     "together: pass arrays in which each of them is equal or 1",
                     shape_A, shape_B);
    }
    Py_XDECREF(shape_A);
    Py_XDECREF(shape_B);
}

bool operand_transpose(View *A)
{
    if (A->axes < 2) {
        PyErr_Format(PyExc_ValueError,
                     "A has %d dimension%s, but gram() takes matrices of shape (..., M, K): pass "
                     "A.reshape(1, -1) for a row, or A.reshape(-1, 1) for a column",
                     A->axes, A->axes == 1 ? "" : "s");
        return false;
    }
    const int row = A->axes - 2, col = A->axes - 1;
    const int64_t rows = A->shape[row], row_bytes = A->bytes[row];
    A->shape[row] = A->shape[col];
    A->bytes[row] = A->bytes[col];
    A->shape[col] = rows;
    A->bytes[col] = row_bytes;
    return true;
}

bool operands_fit(const View *A, const View *B, Product *product, Batch *batch)
{
    const View *const views[] = {A, B};
    for (int index = 0; index < 2; ++index) {
        if (views[index]->axes == 0) {
            const char *const name = index == 0 ? "A" : "B";
            PyErr_Format(PyExc_ValueError,
                         "%s has no dimensions, but a product needs at least 1: pass "
                         "%s.reshape(1, 1) for a matrix",
                         name, name);
            return false;
        }
    }
    if (A->shape[depth_axis(A, true)] != B->shape[depth_axis(B, false)]) {
        refuse_depths(A, B);
        return false;
    }
    if (!batch_of(A, B, product, batch)) {
        refuse_leading(A, B);
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------ C and out */

/* Whether the shape can be broadcast to another, by NumPy's rules. */
static bool broadcasts(const View *array, int axes, const int64_t *shape)
{
    bool does = array->axes <= axes;
    for (int axis = 1; does && axis <= array->axes; ++axis) {
        const int64_t length = array->shape[array->axes - axis];
        does = length == 1 || length == shape[axes - axis];
    }
    return does;
}

/* Sets ValueError for a C or an out that does not have the result's shape. */
static void refuse_result(const View *array, bool is_C, OperandLibrary library, PyObject *found,
                          PyObject *needed, int axes, const int64_t *shape)
{
    const char *const name = is_C ? "C" : "out";
    const bool fits = broadcasts(array, axes, shape);
    const bool is_column = axes == 2 && array->axes == 1 && array->shape[0] == shape[0];
    if (is_C && (fits || is_column)) {
        PyErr_Format(PyExc_ValueError, "C has shape %S but the result is %S: pass %s%s, %S)%s",
                     found, needed, library.broadcast_call, fits ? "" : "[:, None]", needed,
                     fits && is_column && array->shape[0] > 1
                         ? " to add C to each row; write C[:, None] instead of C to add it to "
                           "each column"
                         : "");
    } else if (library.is_numpys) {
        PyErr_Format(PyExc_ValueError,
                     "%s is %S but the result is %S: pass an array of that shape, such as "
                     "numpy.%s(%S, numpy.float32)",
                     name, found, needed, is_C ? "zeros" : "empty", needed);
    } else {
        PyErr_Format(PyExc_ValueError, "%s is %S but the result is %S: pass an array of that shape",
                     name, found, needed);
    }
}

bool operand_fits_result(const View *array, int operand, OperandLibrary library, Product *product,
                         Batch *batch)
{
    if (batch_add(array, operand, product, batch)) {
        return true;
    }
    int64_t shape[VIEW_AXES];
    const int axes = batch_shape(product, batch, shape);
    PyObject *const found = operand_tuple(array->axes, array->shape), *const needed = operand_tuple(
                                                                          axes, shape);
    if (found && needed) {
        refuse_result(array, operand == OF_C, library, found, needed, axes, shape);
    }
    Py_XDECREF(found);
    Py_XDECREF(needed);
    return false;
}

bool operand_is_writable(bool read_only, const View *out, bool is_numpys)
{
    if (read_only) {
        PyErr_Format(PyExc_ValueError, "out is read-only: pass a writable array%s",
                     is_numpys ? ", such as numpy.empty_like(out)" : ", or omit out");
        return false;
    }
    const Overlap overlap = overlap_within(out);
    if (overlap == OVERLAP_NONE) {
        return true;
    }
    PyObject *const strides = operand_tuple(out->axes, out->bytes);
    if (strides) {
        PyErr_Format(PyExc_ValueError,
                     "elements of out %sshare memory (its strides are %S bytes): pass an array "
                     "without overlapping elements%s",
                     overlap == OVERLAP_UNKNOWN ? "may " : "", strides,
                     is_numpys ? ", such as numpy.empty(out.shape, numpy.float32)" : "");
        Py_DECREF(strides);
    }
    return false;
}
