#include "running.h"

#include <math.h>
#include <string.h>

#include "../core/multi_gpu.h"
#include "choosing.h"
#include "interop.h"
#include "operand.h"
#include "raising.h"
#include "result.h"

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

static bool take_operands(PyObject *module, const RunArguments *arguments, Product *product)
{
    if (!interop_host_operand(module, arguments->A, "A", &product->A) ||
        !interop_host_operand(module, arguments->B, "B", &product->B) ||
        !operand_shapes_agree(&product->A, &product->B)) {
        return false;
    }
    if (arguments->C != Py_None &&
        !interop_host_c(module, arguments->C, &product->A, &product->B, &product->C)) {
        return false;
    }
    return beta_fits_c(arguments, product);
}

/* A new reference to the array that receives the result: `out`, or a new array of the library that
 * A belongs to. */
static PyObject *take_out(PyObject *module, const RunArguments *arguments, Product *product)
{
    PyObject *out = arguments->out;
    if (out == Py_None && !PyArray_Check(arguments->A)) {
        return exchange_new(exchange_of(module, arguments->A), DLPACK_CPU, 0, product->A.rows,
                            product->B.cols, &product->out);
    }
    if (out == Py_None) {
        const npy_intp shape[2] = {product->A.rows, product->B.cols};
        out = result_array(2, shape, device_kinds[product->kind], product->device);
        if (out && !operand_array(out, "out", &product->out)) {
            Py_CLEAR(out);
        }
        return out;
    }
    if (!interop_host_operand(module, out, "out", &product->out)) {
        return NULL;
    }
    const bool is_numpys = PyArray_Check(out);
    const int read_only = is_numpys ? !PyArray_ISWRITEABLE((PyArrayObject *)out)
                                    : exchange_is_read_only(exchange_of(module, out), out);
    if (read_only < 0 ||
        !operand_has_result_shape(&product->out, "out", &product->A, &product->B, is_numpys) ||
        !operand_is_writable(read_only, &product->out, is_numpys)) {
        return NULL;
    }
    return Py_NewRef(out);
}

/* Whether any of the arrays may be on a GPU: 1 or 0, or -1 with an exception set. */
static int may_be_on_gpu(PyObject *module, const RunArguments *arguments)
{
    PyObject *const arrays[] = {arguments->A, arguments->B, arguments->C, arguments->out};
    int may = 0;
    for (size_t index = 0; index < sizeof arrays / sizeof *arrays && may == 0; ++index) {
        may = interop_may_import(module, arrays[index]);
    }
    return may;
}

PyObject *run_product(PyObject *module, const RunArguments *arguments)
{
    PyObject *const alpha = arguments->alpha, *const beta = arguments->beta;
    Product product = {.variant = arguments->variant, .alpha = 1.0f, .count = 1};
    if ((alpha && !factor_of(alpha, "alpha", &product.alpha)) ||
        (beta && !factor_of(beta, "beta", &product.beta))) {
        return NULL;
    }
    const int on_gpu = may_be_on_gpu(module, arguments);
    if (on_gpu) {
        return on_gpu > 0 ? run_on_gpu(module, arguments, &product) : NULL;
    }
    if (!take_operands(module, arguments, &product)) {
        return NULL;
    }
    if (arguments->stream != Py_None) {
        PyErr_SetString(PyExc_ValueError,
                        "stream is only for arrays on a GPU, but these are in host memory, so the "
                        "result is complete when run() returns: omit stream");
        return NULL;
    }
    int devices[MOST_GPUS];
    const int count =
        choose_devices(module, product.variant, arguments->device, &product.kind, devices);
    if (count == 0) {
        return NULL;
    }
    product.device = devices[0];
    PyObject *const result = take_out(module, arguments, &product);
    if (!result) {
        raise_out_of_memory(module);
        return NULL;
    }
    if (product.out.rows == 0 || product.out.cols == 0) {
        return result;
    }
    SignalWatch watch = {PyEval_SaveThread(), 0};
    product.interrupt = (Interrupt){signal_raised, &watch};
    const Status status = product_run(&product, devices, count);
    PyEval_RestoreThread(watch.thread);
    if (status.code != STATUS_OK) {
        Py_DECREF(result);
        raise_status(module, &status);
        return NULL;
    }
    return result;
}
