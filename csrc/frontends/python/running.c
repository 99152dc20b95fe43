#include "running.h"

#include <math.h>
#include <string.h>

#include "../../runtime/multi_gpu.h"
#include "choosing.h"
#include "interop.h"
#include "operand.h"
#include "prepared.h"
#include "raising.h"
#include "result.h"
#include "tensors.h"

/* Converts a NumPy scalar or an array without dimensions to a Python number. Returns np.longdouble
 * (it has more bits than a Python float) and other objects unchanged. The reference is new. NULL
 * without an exception means that a NumPy value is not a real number; NULL with one, that a call
 * failed. */
static PyObject *number_of(PyObject *argument)
{
    int type = NPY_NOTYPE;
    if (PyArray_Check(argument)) {
        type = PyArray_NDIM((PyArrayObject *)argument) == 0
                   ? PyArray_TYPE((PyArrayObject *)argument)
                   : NPY_NOTYPE;
    } else if (PyArray_IsScalar(argument, Generic)) {
        PyArray_Descr *const dtype = PyArray_DescrFromScalar(argument);
        type = dtype ? dtype->type_num : NPY_NOTYPE;
        Py_XDECREF((PyObject *)dtype);
    } else {
        return Py_NewRef(argument);
    }
    /* float() would also accept dates, strings and the real part of complex numbers. */
    return PyTypeNum_ISBOOL(type) || PyTypeNum_ISINTEGER(type) || PyTypeNum_ISFLOAT(type)
               ? PyObject_CallMethod(argument, "item", NULL)
               : NULL;
}

/* 1 if one < other; 0 if not, or if they cannot be compared; -1 with an exception set. */
static int is_less(PyObject *one, PyObject *other)
{
    const int less = PyObject_RichCompareBool(one, other, Py_LT);
    if (less < 0 && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        return 0;
    }
    return less;
}

/* Rounds a number to float32 as if directly, without the error of rounding to double first.
 * `nearest` is the number as a double. It may be halfway between two floats when the number is not.
 * So if `nearest` is inexact and its last bit is even, its neighbour towards the number replaces it
 * ("round to odd"). */
static bool round_once(PyObject *number, double nearest, float *factor)
{
    if (!PyFloat_Check(number) && !isnan(nearest)) {
        PyObject *const rounded = PyFloat_FromDouble(nearest);
        const int below = rounded ? is_less(rounded, number) : -1;
        const int above = below == 0 ? is_less(number, rounded) : 0;
        uint64_t bits;
        memcpy(&bits, &nearest, sizeof bits);
        if ((below > 0 || above > 0) && bits % 2 == 0) {
            nearest = nextafter(nearest, below ? INFINITY : -INFINITY);
        }
        Py_XDECREF(rounded);
    }
    *factor = (float)nearest;
    return !PyErr_Occurred();
}

/* Reads a real number, rounded to float32. Sets an exception if it is not one. */
static bool factor_of(PyObject *argument, const char *name, float *factor)
{
    PyObject *const number = number_of(argument);
    const double value = number ? PyFloat_AsDouble(number) : 0.0;
    bool done = number && !PyErr_Occurred() && round_once(number, value, factor);
    if (!done && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))) {
        PyObject *const type = PyType_GetName(Py_TYPE(argument));
        PyErr_Clear();
        if (type) {
            PyErr_Format(PyExc_TypeError, "%s must be a real number, not %U: pass a float", name,
                         type);
            Py_DECREF(type);
        }
    } else if (!done && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "%s is too large for a float: pass float('inf') if you mean infinity", name);
    }
    Py_XDECREF(number);
    return done;
}

bool beta_fits_c(const RunArguments *arguments, const Product *product)
{
    const bool has_c = arguments->C != Py_None;
    if (has_c && !arguments->beta) {
        return PyErr_WarnEx(PyExc_UserWarning,
                            "C is ignored because beta defaults to 0: pass beta=1 to add C, or "
                            "omit C, or pass beta=0 to avoid this warning",
                            1) == 0;
    }
    if (!has_c && product->beta != 0.0f) {
        PyErr_Format(PyExc_ValueError, "beta is %S but C is missing: pass C, or beta=0",
                     arguments->beta);
        return false;
    }
    return true;
}

bool run_take_operands(PyObject *module, const RunArguments *arguments, Product *product,
                       Batch *batch)
{
    View A, B, C;
    if (!interop_host_operand(module, arguments->A, "A", &A) ||
        !interop_host_operand(module, arguments->B, "B", &B) ||
        (arguments->is_gram && !operand_transpose(&B)) || !operands_fit(&A, &B, product, batch)) {
        return false;
    }
    if (arguments->C != Py_None &&
        (!interop_host_operand(module, arguments->C, "C", &C) ||
         !operand_fits_result(&C, OF_C, interop_library(arguments->C), product, batch))) {
        return false;
    }
    return true;
}

/* A new array of NumPy, or a float32 of NumPy if the result has no axes. */
static PyObject *new_numpy_result(Product *product, Batch *batch, int axes, const int64_t *shape)
{
    npy_intp counts[VIEW_AXES];
    for (int axis = 0; axis < axes; ++axis) {
        counts[axis] = shape[axis];
    }
    PyObject *const out = result_array(axes, counts, device_kinds[product->kind], product->device);
    if (out) {
        batch_add_contiguous(PyArray_DATA((PyArrayObject *)out), product, batch);
    }
    return out;
}

PyObject *run_take_out(PyObject *module, const RunArguments *arguments, Product *product,
                       Batch *batch)
{
    PyObject *out = arguments->out;
    if (out == Py_None) {
        int64_t shape[VIEW_AXES];
        void *memory;
        const int axes = batch_shape(product, batch, shape);
        if (PyArray_Check(arguments->A)) {
            return new_numpy_result(product, batch, axes, shape);
        }
        out = dlpack_exchange_new(dlpack_exchange_of(module, arguments->A), DLPACK_CPU, 0, axes,
                                  shape, &memory);
        if (out) {
            batch_add_contiguous(memory, product, batch);
        }
        return out;
    }
    View view;
    if (!interop_host_operand(module, out, "out", &view)) {
        return NULL;
    }
    const bool is_numpys = PyArray_Check(out);
    const int read_only = is_numpys
                              ? !PyArray_ISWRITEABLE((PyArrayObject *)out)
                              : dlpack_exchange_is_read_only(dlpack_exchange_of(module, out), out);
    if (read_only < 0 ||
        !operand_fits_result(&view, OF_OUT, interop_library(out), product, batch) ||
        !operand_is_writable(read_only, &view, is_numpys)) {
        return NULL;
    }
    return Py_NewRef(out);
}

int run_may_be_on_gpu(PyObject *module, const RunArguments *arguments)
{
    PyObject *const arrays[] = {arguments->A, arguments->B, arguments->C, arguments->out};
    int may = 0;
    for (size_t index = 0; index < sizeof arrays / sizeof *arrays && may == 0; ++index) {
        may = interop_may_import(module, arrays[index]);
    }
    return may;
}

bool run_take_factors(const RunArguments *arguments, Product *product)
{
    PyObject *const alpha = arguments->alpha, *const beta = arguments->beta;
    product->alpha = 1.0f;
    product->beta = 0.0f;
    return (!alpha || factor_of(alpha, "alpha", &product->alpha)) &&
           (!beta || factor_of(beta, "beta", &product->beta));
}

bool run_has_no_stream(const RunArguments *arguments)
{
    if (arguments->stream != Py_None) {
        PyErr_SetString(PyExc_ValueError,
                        "stream is only for arrays on a GPU, but A is in host memory, so the "
                        "result is complete when run() returns: omit stream");
    }
    return arguments->stream == Py_None;
}

PyObject *run_product(PyObject *module, const RunArguments *given)
{
    RunArguments replaced = *given;
    const RunArguments *const arguments = &replaced;
    if (!given->is_gram && !prepared_replace(module, &replaced)) {
        return NULL;
    }
    if (prepared_is_far(arguments)) {
        return prepared_run_far(module, arguments);
    }
    Product product = {.variant = arguments->variant, .count = 1};
    if (!run_take_factors(arguments, &product)) {
        return NULL;
    }
    const int on_gpu = run_may_be_on_gpu(module, arguments);
    if (on_gpu) {
        return on_gpu > 0 ? run_on_gpu(module, arguments, &product) : NULL;
    }
    Batch batch;
    if (!run_take_operands(module, arguments, &product, &batch) ||
        !beta_fits_c(arguments, &product)) {
        return NULL;
    }
    if (!run_has_no_stream(arguments)) {
        return NULL;
    }
    int devices[MOST_GPUS];
    const int count =
        choose_devices(module, product.variant, arguments->device, &product.kind, devices);
    if (count == 0) {
        return NULL;
    }
    product.device = devices[0];
    PyObject *const result = run_take_out(module, arguments, &product, &batch);
    if (!result) {
        raise_out_of_memory(module);
        return NULL;
    }
    if (arguments->out != Py_None && !tensor_count_write(result)) {
        Py_DECREF(result);
        return NULL;
    }
    const bool is_scalar = arguments->out == Py_None && batch.axes == 0 && batch.A_is_vector &&
                           batch.B_is_vector && PyArray_Check(result);
    if (product.out.rows == 0 || product.out.cols == 0 || batch_count(&batch) == 0) {
        return result;
    }
    SignalWatch watch = {PyEval_SaveThread(), 0};
    product.interrupt = (Interrupt){signal_raised, &watch};
    const Status status = product_run(&product, &batch, devices, count);
    PyEval_RestoreThread(watch.thread);
    if (status.code != STATUS_OK) {
        Py_DECREF(result);
        raise_status(module, &status);
        return NULL;
    }
    return is_scalar ? PyArray_Return((PyArrayObject *)result) : result;
}
