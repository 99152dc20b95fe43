#include "running.h"

#include <math.h>
#include <string.h>

#include "../core/multi_gpu.h"
#include "choosing.h"
#include "interop.h"
#include "operand.h"
#include "raising.h"
#include "result.h"

/* What a NumPy scalar or an array of no dimensions holds, as Python's number. np.longdouble, which
 * has more bits than Python's float, and objects of other types stay as they are. A new reference,
 * or NULL if NumPy's is not a real number, or with an exception set. */
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
    /* float() would take dates, texts and the real part of complex numbers too. */
    return PyTypeNum_ISBOOL(type) || PyTypeNum_ISINTEGER(type) || PyTypeNum_ISFLOAT(type)
               ? PyObject_CallMethod(argument, "item", NULL)
               : NULL;
}

/* Whether one is less than the other; 0 where they cannot be compared, -1 with an exception set. */
static int is_less(PyObject *one, PyObject *other)
{
    const int less = PyObject_RichCompareBool(one, other, Py_LT);
    if (less < 0 && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        return 0;
    }
    return less;
}

/* The number as a float, rounded once. `nearest` is the number rounded to a double, which may lie
 * halfway between two floats when the number does not. A double that differs from the number is
 * therefore replaced by its neighbour with an odd last bit ("round to odd"). */
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

/* A real number, rounded to float32. */
static bool factor_of(PyObject *argument, const char *name, float *factor)
{
    PyObject *const number = number_of(argument);
    const double value = number ? PyFloat_AsDouble(number) : 0.0;
    bool done = number && !PyErr_Occurred() && round_once(number, value, factor);
    if (!done && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))) {
        PyObject *const type = PyType_GetName(Py_TYPE(argument));
        PyErr_Clear();
        if (type) {
            PyErr_Format(PyExc_TypeError,
                         "%s must be a real number, and is of type %U: pass a float", name, type);
            Py_DECREF(type);
        }
    } else if (!done && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(
            PyExc_ValueError,
            "%s is beyond the range of a float: pass float('inf') if that is what is meant", name);
    }
    Py_XDECREF(number);
    return done;
}

bool beta_fits_c(const RunArguments *arguments, const Product *product)
{
    const bool has_c = arguments->C != Py_None;
    if (has_c && !arguments->beta) {
        return PyErr_WarnEx(PyExc_UserWarning,
                            "C is not added, since beta is 0 unless given: pass beta=1 to add it, "
                            "beta=0 to say that this is meant, or leave C out",
                            1) == 0;
    }
    if (!has_c && product->beta != 0.0f) {
        PyErr_Format(PyExc_ValueError,
                     "beta is %S and there is no C to multiply by it: pass C, or beta=0",
                     arguments->beta);
        return false;
    }
    return true;
}

static bool take_operands(const RunArguments *arguments, Product *product)
{
    if (!operand_array(arguments->A, "A", &product->A) ||
        !operand_array(arguments->B, "B", &product->B) ||
        !operand_shapes_agree(&product->A, &product->B)) {
        return false;
    }
    if (arguments->C != Py_None &&
        !operand_c(arguments->C, &product->A, &product->B, &product->C)) {
        return false;
    }
    return beta_fits_c(arguments, product);
}

/* A new reference to the array that receives the result. */
static PyObject *take_out(PyObject *out, Product *product)
{
    if (out == Py_None) {
        const npy_intp shape[2] = {product->A.rows, product->B.cols};
        out = result_array(2, shape, device_kinds[product->kind], product->device);
        if (out && !operand_array(out, "out", &product->out)) {
            Py_CLEAR(out);
        }
        return out;
    }
    if (!operand_array(out, "out", &product->out) ||
        !operand_has_result_shape(&product->out, "out", &product->A, &product->B, true) ||
        !operand_is_writable(!PyArray_ISWRITEABLE((PyArrayObject *)out), &product->out, true)) {
        return NULL;
    }
    return Py_NewRef(out);
}

/* Whether an array may be one that is on a GPU: 1 or 0, or -1 with an exception set. */
static int may_be_on_gpu(const RunArguments *arguments)
{
    PyObject *const arrays[] = {arguments->A, arguments->B, arguments->C, arguments->out};
    int may = 0;
    for (size_t index = 0; index < sizeof arrays / sizeof *arrays && may == 0; ++index) {
        may = interop_may_lend(arrays[index]);
    }
    return may;
}

PyObject *run_product(PyObject *module, const RunArguments *arguments)
{
    PyObject *const alpha = arguments->alpha, *const beta = arguments->beta;
    Product product = {.variant = arguments->variant, .alpha = 1.0f};
    if ((alpha && !factor_of(alpha, "alpha", &product.alpha)) ||
        (beta && !factor_of(beta, "beta", &product.beta))) {
        return NULL;
    }
    const int on_gpu = may_be_on_gpu(arguments);
    if (on_gpu) {
        return on_gpu > 0 ? run_on_gpu(module, arguments, &product) : NULL;
    }
    if (!take_operands(arguments, &product)) {
        return NULL;
    }
    if (arguments->stream != Py_None) {
        PyErr_SetString(PyExc_ValueError,
                        "stream orders work on arrays that are on a GPU, and these are NumPy's, "
                        "whose result is there when run() returns: leave stream out");
        return NULL;
    }
    int devices[MOST_GPUS];
    const int count =
        choose_devices(module, product.variant, arguments->device, &product.kind, devices);
    if (count == 0) {
        return NULL;
    }
    product.device = devices[0];
    PyObject *const result = take_out(arguments->out, &product);
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
