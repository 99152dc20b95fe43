/* The Python face: argument parsing, types, exceptions. No CUDA call, no arithmetic. */
#define SGEMM_DEFINES_NUMPY
#include "python.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "catalog.h"
#include "count/count.h"
#include "device.h"
#include "device_array.h"
#include "interop.h"
#include "operand.h"
#include "product.h"
#include "result.h"
#include "several.h"

typedef struct {
    PyObject *Error;
    PyObject *DeviceError;
    PyObject *OutOfMemoryError;
    PyObject *UnsupportedVariantError;
    PyObject *DeviceArray;
} State;

/* ------------------------------------------------------------------ failures */

void raise_status(PyObject *module, const Status *status)
{
    const State *const state = PyModule_GetState(module);
    switch (status->code) {
    case STATUS_OUT_OF_MEMORY:
        PyErr_SetString(state->OutOfMemoryError, status->message);
        break;
    case STATUS_UNSUPPORTED:
        PyErr_SetString(state->UnsupportedVariantError, status->message);
        break;
    case STATUS_INVALID:
        PyErr_SetString(PyExc_ValueError, status->message);
        break;
    case STATUS_INTERRUPTED:
        break; /* the signal's handler has raised already */
    default:
        PyErr_SetString(state->DeviceError, status->message);
    }
}

/* ------------------------------------------------------------------ which variant, which device */

static void refuse_variant(const char *name)
{
    PyObject *const names = PyList_New(0);
    PyObject *near = NULL, *difflib = NULL, *list = NULL, *comma = NULL;
    for (const Variant *const *variant = catalog; names && *variant; ++variant) {
        PyObject *const text = PyUnicode_FromString((*variant)->name);
        if (!text || PyList_Append(names, text) < 0) {
            Py_XDECREF(text);
            goto done;
        }
        Py_DECREF(text);
    }
    difflib = PyImport_ImportModule("difflib");
    near = difflib ? PyObject_CallMethod(difflib, "get_close_matches", "sOid", name, names, 1, 0.0)
                   : NULL;
    comma = PyUnicode_FromString(", ");
    list = near && comma ? PyUnicode_Join(comma, names) : NULL;
    if (list) {
        PyErr_Format(PyExc_ValueError,
                     "there is no variant '%s': did you mean '%U'? The variants are %U", name,
                     PyList_GetItem(near, 0), list);
    }
done:
    Py_XDECREF(list);
    Py_XDECREF(comma);
    Py_XDECREF(near);
    Py_XDECREF(difflib);
    Py_XDECREF(names);
}

/* The text of a str argument, valid as long as the argument; NULL with TypeError set if it is
 * none. */
static const char *text_of(PyObject *argument, const char *name, const char *example)
{
    if (!PyUnicode_Check(argument)) {
        PyObject *const type = PyType_GetName(Py_TYPE(argument));
        if (type) {
            PyErr_Format(PyExc_TypeError, "%s must be a str, and is of type %U: pass a name, as %s",
                         name, type, example);
            Py_DECREF(type);
        }
        return NULL;
    }
    Py_ssize_t length;
    const char *const text = PyUnicode_AsUTF8AndSize(argument, &length);
    if (!text || strlen(text) != (size_t)length) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is %A, which is no name: pass one as %s", name, argument,
                     example);
        return NULL;
    }
    return text;
}

static Status cuda_count(int *count)
{
    if (!device_kinds[DEVICE_CUDA]) {
        *count = 0;
        return status_error(
            STATUS_UNSUPPORTED,
            "this build is for the CPU alone (it was made with SGEMM_KERNELS_CUDA=0)");
    }
    Status why;
    *count = device_kinds[DEVICE_CUDA]->count(&why);
    return why;
}

/* The first GPU that this build can use, or -1 and why there is none. */
static int first_usable_gpu(Status *why)
{
    int count;
    *why = cuda_count(&count);
    for (int index = 0; index < count; ++index) {
        *why = device_kinds[DEVICE_CUDA]->usable(index);
        if (why->code == STATUS_OK) {
            return index;
        }
    }
    return -1;
}

static bool warn_once_of_cpu(const Status *why)
{
    static bool warned; /* guarded by the GIL */
    if (warned) {
        return true;
    }
    warned = true;
    return PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                            "no usable GPU (%s): the CPU device serves, which is right but tells "
                            "nothing of a GPU's "
                            "speed; pass device='cpu' to ask for it without this warning",
                            why->message) == 0;
}

enum { ALL_GPUS = -1 }; /* the index that 'cuda:all' stands for */

/* device='cuda' or 'cuda:<index>', given the text after "cuda". */
static bool choose_gpu(PyObject *module, const char *index_text, int *index)
{
    const State *const state = PyModule_GetState(module);
    int count;
    Status why = cuda_count(&count);
    if (*index_text == '\0') {
        *index = why.code == STATUS_OK ? first_usable_gpu(&why) : -1;
    } else {
        const long wanted = strtol(index_text + 1, NULL, 10);
        *index = wanted < count ? (int)wanted : -1;
        if (*index >= 0) {
            why = device_kinds[DEVICE_CUDA]->usable(*index);
        } else if (count > 0) {
            PyErr_Format(state->DeviceError,
                         "there is no device 'cuda%s': the last of %d is 'cuda:%d'", index_text,
                         count, count - 1);
            return false;
        }
    }
    if (*index < 0 || why.code != STATUS_OK) {
        PyErr_Format(state->DeviceError, "device 'cuda%s' cannot be used: %s", index_text,
                     why.message);
        return false;
    }
    return true;
}

/* The GPUs that this build can use, at most MOST_GPUS; 0 and why there are none. */
static int usable_gpus(int gpus[MOST_GPUS], Status *why)
{
    int count, usable = 0;
    *why = cuda_count(&count);
    for (int index = 0; index < count && usable < MOST_GPUS; ++index) {
        *why = device_kinds[DEVICE_CUDA]->usable(index);
        if (why->code == STATUS_OK) {
            gpus[usable++] = index;
        }
    }
    return usable;
}

static bool is_index(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits >= 1 && digits <= 6 && text[digits] == '\0';
}

static bool choose_device(PyObject *module, PyObject *argument, DeviceKind *kind, int *index)
{
    const State *const state = PyModule_GetState(module);
    if (argument == Py_None) {
        Status why;
        *index = first_usable_gpu(&why);
        if (*index >= 0) {
            *kind = DEVICE_CUDA;
            return true;
        }
        if (why.code == STATUS_DEVICE) {
            PyErr_SetString(state->DeviceError, why.message);
            return false;
        }
        *kind = DEVICE_CPU;
        *index = 0;
        return warn_once_of_cpu(&why);
    }
    const char *const name = text_of(argument, "device", "'cpu' or 'cuda'");
    if (!name) {
        return false;
    }
    if (strcmp(name, "cpu") == 0) {
        *kind = DEVICE_CPU;
        *index = 0;
        return true;
    }
    *kind = DEVICE_CUDA;
    if (strcmp(name, "cuda:all") == 0) {
        *index = ALL_GPUS;
        return true;
    }
    if (strcmp(name, "cuda") == 0 || (strncmp(name, "cuda:", 5) == 0 && is_index(name + 5))) {
        return choose_gpu(module, name + 4, index);
    }
    PyErr_Format(PyExc_ValueError,
                 "there is no device called '%s': pass 'cpu', 'cuda', 'cuda:<index>', 'cuda:all' "
                 "or None",
                 name);
    return false;
}

/* The reference needs a library that is opened when first asked for. */
static bool open_cublas(void)
{
#ifdef SGEMM_CUDA
    if (!cublas_is_open()) {
        PyObject *const loader = PyImport_ImportModule("sgemm_kernels._cublas");
        PyObject *const result = loader ? PyObject_CallMethod(loader, "load", NULL) : NULL;
        Py_XDECREF(loader);
        Py_XDECREF(result);
        return result != NULL;
    }
#endif
    return true;
}

static bool can_run(PyObject *module, const Variant *variant, DeviceKind kind, int index)
{
    const State *const state = PyModule_GetState(module);
    if (!variant->launch[kind]) {
        Status why = status_ok();
        if (kind == DEVICE_CPU) {
            first_usable_gpu(&why);
        }
        PyErr_Format(state->UnsupportedVariantError, "variant '%s' does not run on the %s%s%s",
                     variant->name,
                     kind == DEVICE_CPU ? "CPU device: it needs a GPU" : "GPU: pass device='cpu'",
                     why.code == STATUS_OK ? "" : ", and here ", why.message);
        return false;
    }
    if (kind != DEVICE_CUDA) {
        return true;
    }
    int found[2];
    device_kinds[kind]->compute_capability(index, found);
    const int *const needed = variant->min_compute_capability;
    if (found[0] < needed[0] || (found[0] == needed[0] && found[1] < needed[1])) {
        PyErr_Format(state->UnsupportedVariantError,
                     "variant '%s' needs compute capability %d.%d, and cuda:%d has %d.%d",
                     variant->name, needed[0], needed[1], index, found[0], found[1]);
        return false;
    }
    return strncmp(variant->name, "cublas", 6) != 0 || open_cublas();
}

/* All of `count` devices can run the variant; if not, sets an exception. */
static bool can_all_run(PyObject *module, const Variant *variant, DeviceKind kind,
                        const int *devices, int count)
{
    int able = 0;
    while (able < count && can_run(module, variant, kind, devices[able])) {
        ++able;
    }
    return able == count;
}

/* The devices that the argument names, which can run the variant: their kind and indices, and how
 * many; 0 with an exception set if one cannot. */
static int choose_devices(PyObject *module, const Variant *variant, PyObject *argument,
                          DeviceKind *kind, int devices[MOST_GPUS])
{
    if (!choose_device(module, argument, kind, devices)) {
        return 0;
    }
    Status why = status_ok();
    const int count = *devices == ALL_GPUS ? usable_gpus(devices, &why) : 1;
    if (count == 0) {
        const State *const state = PyModule_GetState(module);
        PyErr_Format(state->DeviceError, "device 'cuda:all' cannot be used: %s", why.message);
    }
    return can_all_run(module, variant, *kind, devices, count) ? count : 0;
}

/* ------------------------------------------------------------------ run */

/* A real number, rounded to float32. */
static bool factor_of(PyObject *argument, const char *name, float *factor)
{
    /* Of a complex number Python would take the real part, with a warning at best. */
    const bool is_complex =
        PyComplex_Check(argument) || PyArray_IsScalar(argument, ComplexFloating);
    const double value = is_complex ? 0.0 : PyFloat_AsDouble(argument);
    if (is_complex || (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError))) {
        PyObject *const type = PyType_GetName(Py_TYPE(argument));
        PyErr_Clear();
        if (type) {
            PyErr_Format(PyExc_TypeError,
                         "%s must be a real number, and is of type %U: pass a float", name, type);
            Py_DECREF(type);
        }
        return false;
    }
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(
            PyExc_ValueError,
            "%s is beyond the range of a float: pass float('inf') if that is what is meant", name);
    }
    *factor = (float)value;
    return !PyErr_Occurred();
}

/* Polled while the GIL is released: takes it, lets signal handlers run, gives it back. */
static bool signal_raised(void *context)
{
    PyThreadState **const thread = context;
    PyEval_RestoreThread(*thread);
    const bool raised = PyErr_CheckSignals() != 0;
    *thread = PyEval_SaveThread();
    return raised;
}

static bool refuse_beta(PyObject *beta)
{
    PyErr_Format(PyExc_ValueError,
                 "beta is %S and there is no C to multiply by it: pass C, or beta=0", beta);
    return false;
}

static bool take_operands(PyObject *A, PyObject *B, PyObject *C, PyObject *beta, Product *product)
{
    if (!operand_array(A, "A", &product->A) || !operand_array(B, "B", &product->B) ||
        !operand_shapes_agree(&product->A, &product->B)) {
        return false;
    }
    if (C != Py_None) {
        return operand_array(C, "C", &product->C) &&
               operand_has_result_shape(&product->C, "C", &product->A, &product->B, true);
    }
    return product->beta == 0.0f || refuse_beta(beta);
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

/* ------------------------------------------------------------------ run, of arrays on a GPU */

enum { OPERAND_A, OPERAND_B, OPERAND_C, OPERAND_OUT, OPERANDS };

/* Finds out where the operands are: one GPU, of which the number is returned; -1 with an exception
 * set if not. */
static int locate_operands(PyObject *module, Lent operands[OPERANDS])
{
    const State *const state = PyModule_GetState(module);
    const Lent *first = NULL;
    const char *host = NULL;
    for (int index = 0; index < OPERANDS; ++index) {
        Lent *const lent = &operands[index];
        if (lent->argument == Py_None && index >= OPERAND_C) {
            continue;
        }
        if (!interop_may_lend(lent->argument)) {
            if (!operand_array(lent->argument, lent->name, &lent->array)) {
                return -1;
            }
            host = host ? host : lent->name;
            continue;
        }
        if (!interop_locate(lent, module, (PyTypeObject *)state->DeviceArray)) {
            return -1;
        }
        if (!first || first->device < 0) {
            first = lent;
        } else if (lent->device >= 0 && lent->device != first->device) {
            PyErr_Format(PyExc_ValueError,
                         "%s is on cuda:%d and %s is on cuda:%d: pass arrays that are all on one "
                         "GPU; device='cuda:all' lets other GPUs help it",
                         first->name, first->device, lent->name, lent->device);
            return -1;
        }
    }
    if (host) {
        interop_refuse_mixture(first, host);
        return -1;
    }
    return first->device < 0 ? 0 : first->device;
}

/* The GPUs to compute on, the operands' first; 0 with an exception set if `device` forbids them. */
static int devices_for(PyObject *module, const Variant *variant, PyObject *device, int home,
                       int devices[MOST_GPUS])
{
    char text[16];
    PyOS_snprintf(text, sizeof text, ":%d", home);
    if (!choose_gpu(module, text, devices)) {
        return 0;
    }
    DeviceKind kind = DEVICE_CUDA;
    if (device == Py_None ||
        (PyUnicode_Check(device) && PyUnicode_CompareWithASCIIString(device, "cuda") == 0)) {
        return can_run(module, variant, kind, home) ? 1 : 0;
    }
    const int count = choose_devices(module, variant, device, &kind, devices);
    for (int each = 0; each < count; ++each) {
        if (kind == DEVICE_CUDA && devices[each] == home) {
            devices[each] = devices[0];
            devices[0] = home;
            return count;
        }
    }
    if (count > 0) {
        PyErr_Format(PyExc_ValueError,
                     "the operands are on cuda:%d and device is %R: pass device=None, or operands "
                     "that are there",
                     home, device);
    }
    return 0;
}

/* Borrows the operands and checks them against each other, as multiply does those of NumPy. */
static bool borrow_operands(PyObject *module, Visit *visit, Lent operands[OPERANDS], PyObject *beta,
                            Product *product)
{
    for (int index = 0; index < OPERANDS; ++index) {
        if (operands[index].argument != Py_None &&
            !interop_borrow(&operands[index], visit, module)) {
            return false;
        }
    }
    const Lent *const C = &operands[OPERAND_C], *const out = &operands[OPERAND_OUT];
    product->A = operands[OPERAND_A].array;
    product->B = operands[OPERAND_B].array;
    product->C = C->array;
    product->out = out->array;
    if (!operand_shapes_agree(&product->A, &product->B) ||
        (C->argument != Py_None &&
         !operand_has_result_shape(&product->C, C->name, &product->A, &product->B, false)) ||
        (C->argument == Py_None && product->beta != 0.0f && !refuse_beta(beta))) {
        return false;
    }
    return out->argument == Py_None ||
           (operand_has_result_shape(&product->out, out->name, &product->A, &product->B, false) &&
            operand_is_writable(out->read_only, &product->out, false));
}

/* The product of operands that the visit's GPU has. */
static PyObject *multiply_lent(PyObject *module, Visit *visit, Lent operands[OPERANDS],
                               PyObject *beta, Product *product, const int *devices, int count)
{
    const State *const state = PyModule_GetState(module);
    PyObject *const out = operands[OPERAND_OUT].argument;
    if (!borrow_operands(module, visit, operands, beta, product)) {
        return NULL;
    }
    if (out != Py_None && (product->out.rows == 0 || product->out.cols == 0)) {
        return Py_NewRef(out);
    }
    Block *block = operands[OPERAND_OUT].block;
    Status status;
    Py_BEGIN_ALLOW_THREADS;
    status = device_kinds[DEVICE_CUDA]->resident->run(visit, product, devices, count, &block);
    Py_END_ALLOW_THREADS;
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    return out != Py_None ? Py_NewRef(out)
                          : device_array_new((PyTypeObject *)state->DeviceArray, block);
}

static PyObject *multiply_on_device(PyObject *module, Lent operands[OPERANDS], PyObject *beta,
                                    PyObject *device, PyObject *stream_argument, Product *product)
{
    void *stream;
    int devices[MOST_GPUS];
    const int home =
        interop_stream(stream_argument, &stream) ? locate_operands(module, operands) : -1;
    const int count = home >= 0 ? devices_for(module, product->variant, device, home, devices) : 0;
    if (count == 0) {
        return NULL;
    }
    if (stream && count > 1) {
        PyErr_SetString(
            PyExc_ValueError,
            "stream is one GPU's and device='cuda:all' takes them all: pass one of them");
        return NULL;
    }
    const Resident *const resident = device_kinds[DEVICE_CUDA]->resident;
    Visit visit;
    Status status;
    /* It may wait for the device, and what that waits for may be a callback that needs the GIL. */
    Py_BEGIN_ALLOW_THREADS;
    status = resident->enter(devices[0], stream, &visit);
    Py_END_ALLOW_THREADS;
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    PyObject *const result = multiply_lent(module, &visit, operands, beta, product, devices, count);
    resident->leave(&visit);
    for (int index = 0; index < OPERANDS; ++index) {
        interop_return(&operands[index]);
    }
    return result;
}

/* ------------------------------------------------------------------ run, of any arrays */

static PyObject *multiply(PyObject *module, PyObject *args, PyObject *keywords,
                          const Variant *(*find)(const char *name))
{
    static char *names[] = {"variant", "A",   "B",      "C",      "alpha",
                            "beta",    "out", "device", "stream", NULL};
    PyObject *name, *A, *B, *C = Py_None, *alpha = NULL, *beta = NULL, *out = Py_None,
                            *device = Py_None, *stream = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO|$OOOOOO:run", names, &name, &A, &B, &C,
                                     &alpha, &beta, &out, &device, &stream)) {
        return NULL;
    }
    Product product = {.alpha = 1.0f};
    const char *const variant_name = text_of(name, "variant", "'vec4'");
    if (!variant_name) {
        return NULL;
    }
    product.variant = find(variant_name);
    if (!product.variant) {
        refuse_variant(variant_name);
        return NULL;
    }
    if ((alpha && !factor_of(alpha, "alpha", &product.alpha)) ||
        (beta && !factor_of(beta, "beta", &product.beta))) {
        return NULL;
    }
    if (interop_may_lend(A) || interop_may_lend(B) || interop_may_lend(C) ||
        interop_may_lend(out)) {
        Lent operands[OPERANDS] = {[OPERAND_A] = {.name = "A", .argument = A},
                                   [OPERAND_B] = {.name = "B", .argument = B},
                                   [OPERAND_C] = {.name = "C", .argument = C},
                                   [OPERAND_OUT] = {.name = "out", .argument = out}};
        return multiply_on_device(module, operands, beta, device, stream, &product);
    }
    if (!take_operands(A, B, C, beta, &product)) {
        return NULL;
    }
    if (stream != Py_None) {
        PyErr_SetString(PyExc_ValueError,
                        "stream orders work on arrays that are on a GPU, and these are NumPy's, "
                        "whose result is there when run() returns: leave stream out");
        return NULL;
    }
    int devices[MOST_GPUS];
    const int count = choose_devices(module, product.variant, device, &product.kind, devices);
    if (count == 0) {
        return NULL;
    }
    product.device = devices[0];
    PyObject *const result = take_out(out, &product);
    if (!result) {
        return NULL;
    }
    if (product.out.rows == 0 || product.out.cols == 0) {
        return result;
    }
    PyThreadState *thread = PyEval_SaveThread();
    product.interrupt = (Interrupt){signal_raised, &thread};
    const Status status = count > 1 ? several_run(&product, devices, count) : product_run(&product);
    PyEval_RestoreThread(thread);
    if (status.code != STATUS_OK) {
        Py_DECREF(result);
        raise_status(module, &status);
        return NULL;
    }
    return result;
}

PyDoc_STRVAR(
    run_doc,
    "run(variant, A, B, *, C=None, alpha=1.0, beta=0.0, out=None, device=None, stream=None)\n"
    "--\n"
    "\n"
    "Multiply two matrices with the kernel variant named: alpha * A @ B + beta * C.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "variant : str\n"
    "    A name from variants(), as 'naive' or 'vec4'.\n"
    "A : array of float32, shape (M, K)\n"
    "B : array of float32, shape (K, N)\n"
    "C : array of float32, shape (M, N), optional\n"
    "    Needed when beta is not 0, and not read when it is. A, B and C may have any strides,\n"
    "    alignment and byte order, and are not changed. They and out are all numpy.ndarray, or "
    "all\n"
    "    on one GPU: arrays of any library that lends them by __dlpack__ or\n"
    "    __cuda_array_interface__, as CuPy, PyTorch, Numba and JAX do, or DeviceArray. Those are\n"
    "    used where they lie.\n"
    "alpha, beta : float\n"
    "    Rounded to float32 first. When alpha is 0, neither A nor B is read.\n"
    "out : array of float32, shape (M, N), optional\n"
    "    Where to put the result: writable, with any strides. It may be C, and may overlap A, B or "
    "C:\n"
    "    the result is as if they had been copied first. After an exception its content is "
    "undefined.\n"
    "device : str, optional\n"
    "    'cpu', 'cuda' (the first usable GPU), 'cuda:<index>', or 'cuda:all', which divides the "
    "rows\n"
    "    of A and C over all usable GPUs. None, the default, is the first usable GPU, or else the "
    "CPU\n"
    "    device, with one RuntimeWarning per process. Arrays that are on a GPU are multiplied "
    "there,\n"
    "    whatever the default; with 'cuda:all' the other GPUs help it.\n"
    "stream : object with __cuda_stream__, or int, optional\n"
    "    For arrays on a GPU: the CUDA stream to work in, as cupy.cuda.Stream or a handle (CuPy's\n"
    "    stream.ptr, PyTorch's stream.cuda_stream). The call returns when the work is queued "
    "there,\n"
    "    after the work that made the operands; their memory must not be used for anything else\n"
    "    before the stream has passed. With None the call waits for the operands, and the result "
    "is\n"
    "    there when it returns.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "numpy.ndarray or DeviceArray of float32, shape (M, N)\n"
    "    out if given, else a new C-contiguous array: a DeviceArray if the operands are on a GPU.\n"
    "    Each element is within\n"
    "    gamma(K + 3) * (|alpha| |A| |B| + |beta| |C|) of the exact value, gamma(n) = n u / (1 - n "
    "u),\n"
    "    u = 2**-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.5), "
    "underflow aside.\n"
    "\n"
    "Raises\n"
    "------\n"
    "TypeError\n"
    "    An argument is of a wrong type or dtype; nothing is converted silently, and nothing "
    "moved\n"
    "    between the host and a GPU.\n"
    "ValueError\n"
    "    Dimensions or shapes do not fit, out is read-only or overlaps itself, beta has no C to "
    "multiply,\n"
    "    operands are on two GPUs or not on `device`, a tensor requires a gradient, or there is no "
    "such\n"
    "    variant, device name or stream.\n"
    "UnsupportedVariantError\n"
    "    The variant cannot run on that device.\n"
    "OutOfMemoryError\n"
    "    The host or the device has too little memory.\n"
    "DeviceError\n"
    "    The device is not there, or failed.\n"
    "KeyboardInterrupt\n"
    "    Ctrl-C: within about a second on the CPU device, between pieces of the result on a GPU.\n"
    "\n"
    "The GIL is released while copying and computing, and any number of threads may call at once.");

static PyObject *run(PyObject *module, PyObject *args, PyObject *keywords)
{
    return multiply(module, args, keywords, catalog_find);
}

PyDoc_STRVAR(
    run_measured_doc,
    "run, of what may be measured: the reference in reduced precision, 'cublas-tf32', too. "
    "The\nbound of run is not one for that.");

static PyObject *run_measured(PyObject *module, PyObject *args, PyObject *keywords)
{
    return multiply(module, args, keywords, catalog_find_measured);
}

PyDoc_STRVAR(
    empty_doc,
    "empty(shape)\n--\n\n"
    "A new float32 array of that shape, C-contiguous and not initialised, in memory that a "
    "GPU copies\nfrom and to by itself: what run() takes from it, or puts into it as out, is "
    "not staged.\n"
    "\n"
    "The memory is that of results: see memory(). Without a usable GPU, or beyond the limit, "
    "it is\nordinary memory.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "shape : int or tuple of int");

static PyObject *empty(PyObject *Py_UNUSED(module), PyObject *argument)
{
    PyArray_Dims shape = {NULL, 0};
    if (!PyArray_IntpConverter(argument, &shape)) {
        return NULL;
    }
    Status why;
    const int index = first_usable_gpu(&why);
    PyObject *const array =
        result_array(shape.len, shape.ptr, index >= 0 ? device_kinds[DEVICE_CUDA] : NULL, index);
    PyDimMem_FREE(shape.ptr);
    return array;
}

/* ------------------------------------------------------------------ what there is */

static PyObject *kinds_of(const Variant *variant)
{
    PyObject *const kinds = PyList_New(0);
    for (int kind = 0; kinds && kind < DEVICE_KINDS; ++kind) {
        if (device_kinds[kind] && variant->launch[kind]) {
            PyObject *const name = PyUnicode_FromString(device_kinds[kind]->name);
            if (!name || PyList_Append(kinds, name) < 0) {
                Py_XDECREF(name);
                Py_DECREF(kinds);
                return NULL;
            }
            Py_DECREF(name);
        }
    }
    PyObject *const result = kinds ? PyList_AsTuple(kinds) : NULL;
    Py_XDECREF(kinds);
    return result;
}

static PyObject *describe_variant(const Variant *v)
{
    return Py_BuildValue("{s:s, s:s, s:z, s:(iii), s:(ii), s:i, s:i, s:(ii), s:N}", "name", v->name,
                         "summary", v->summary, "file", v->file, "block_tile", v->block_tile[0],
                         v->block_tile[1], v->block_tile[2], "thread_tile", v->thread_tile[0],
                         v->thread_tile[1], "threads", v->threads, "shared_bytes", v->shared_bytes,
                         "min_compute_capability", v->min_compute_capability[0],
                         v->min_compute_capability[1], "devices", kinds_of(v));
}

/* Appends and gives up the item; false with an exception set if either failed. */
static bool append(PyObject *list, PyObject *item)
{
    const bool done = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return done;
}

static PyObject *as_tuple(PyObject *list)
{
    PyObject *const tuple = PyErr_Occurred() ? NULL : PyList_AsTuple(list);
    Py_DECREF(list);
    return tuple;
}

static PyObject *list_variants(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *const list = PyList_New(0);
    for (const Variant *const *variant = catalog;
         list && *variant && append(list, describe_variant(*variant)); ++variant) {
    }
    return list ? as_tuple(list) : NULL;
}

static PyObject *number_or_none(int64_t number)
{
    return number ? PyLong_FromLongLong(number) : Py_NewRef(Py_None);
}

static PyObject *describe_device(PyObject *module, DeviceKind kind, int index)
{
    DeviceInfo info;
    const Device *const device = device_kinds[kind];
    const Status status = device->describe(index, &info);
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    const bool gpu = kind == DEVICE_CUDA;
    PyObject *const name = gpu ? PyUnicode_FromFormat("%s:%d", device->name, index)
                               : PyUnicode_FromString(device->name);
    PyObject *const capability =
        gpu ? Py_BuildValue("(ii)", info.compute_capability[0], info.compute_capability[1])
            : Py_NewRef(Py_None);
    return Py_BuildValue(
        "{s:N, s:s, s:s, s:O, s:z, s:N, s:N, s:N, s:N, s:N, s:N, s:N, s:N, s:z, s:z}", "name", name,
        "kind", device->name, "model", info.model, "usable", info.problem[0] ? Py_False : Py_True,
        "problem", info.problem[0] ? info.problem : NULL, "compute_capability", capability,
        "multiprocessors", number_or_none(info.multiprocessors), "clock_mhz",
        number_or_none(info.clock_mhz), "memory_clock_mhz", number_or_none(info.memory_clock_mhz),
        "memory_bytes", number_or_none(info.memory_bytes), "l2_bytes",
        number_or_none(info.l2_bytes), "shared_bytes_per_multiprocessor",
        number_or_none(info.shared_bytes_per_multiprocessor), "registers_per_multiprocessor",
        number_or_none(info.registers_per_multiprocessor), "driver",
        info.driver[0] ? info.driver : NULL, "pci_bus_id",
        info.pci_bus_id[0] ? info.pci_bus_id : NULL);
}

static PyObject *list_devices(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    PyObject *const list = PyList_New(0);
    int count;
    cuda_count(&count);
    for (int index = 0;
         list && index < count && append(list, describe_device(module, DEVICE_CUDA, index));
         ++index) {
    }
    if (list && !PyErr_Occurred()) {
        append(list, describe_device(module, DEVICE_CPU, 0));
    }
    return list ? as_tuple(list) : NULL;
}

static PyObject *cuda_problem(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    Status why;
    return first_usable_gpu(&why) >= 0 ? Py_NewRef(Py_None) : PyUnicode_FromString(why.message);
}

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

static PyObject *build_info(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
#ifdef SGEMM_CUDA
    const char *const toolkit = SGEMM_TOOLKIT, *const architectures = SGEMM_ARCHITECTURES;
#else
    const char *const toolkit = NULL, *const architectures = "";
#endif
    PyObject *const text = PyUnicode_FromString(architectures);
    PyObject *const list = text ? PyUnicode_Split(text, NULL, -1) : NULL;
    PyObject *const words = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(list);
    return Py_BuildValue("{s:s, s:z, s:N, s:s}", "csrc_hash", SGEMM_CSRC_HASH, "cuda_toolkit",
                         toolkit, "architectures", words, "compiler", COMPILER);
}

static PyObject *open_cublas_at(PyObject *module, PyObject *argument)
{
    const char *const path = text_of(argument, "path", "'/usr/lib/libcublas.so'");
    if (!path) {
        return NULL;
    }
#ifdef SGEMM_CUDA
    const Status status = cublas_open(path);
#else
    const Status status = status_error(
        STATUS_UNSUPPORTED, "this build is for the CPU alone, and has no use for cuBLAS");
#endif
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    return Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------ measuring */

enum { MOST_MEASURED = 64 };

static bool take_variants(PyObject *module, PyObject *names, int device, const Variant **variants,
                          int *count)
{
    *count = (int)PyTuple_Size(names);
    if (*count < 1 || *count > MOST_MEASURED) {
        PyErr_Format(PyExc_ValueError, "1 to %d variants can be measured together, not %d",
                     MOST_MEASURED, *count);
        return false;
    }
    for (int index = 0; index < *count; ++index) {
        const char *const name = text_of(PyTuple_GetItem(names, index), "a variant", "'vec4'");
        variants[index] = name ? catalog_find_measured(name) : NULL;
        if (name && !variants[index]) {
            refuse_variant(name);
        }
        if (!variants[index] || !can_run(module, variants[index], DEVICE_CUDA, device)) {
            return false;
        }
    }
    return true;
}

static PyObject *seconds_by_variant(const double *seconds, int rounds, int count)
{
    PyObject *const result = PyList_New(0);
    for (int index = 0; result && index < count; ++index) {
        PyObject *const samples = PyList_New(0);
        for (int round = 0; samples && round < rounds; ++round) {
            const double value = seconds[round * count + index];
            if (!isnan(value) && !append(samples, PyFloat_FromDouble(value))) {
                break;
            }
        }
        if (PyErr_Occurred() || !append(result, samples)) {
            break;
        }
    }
    return result ? as_tuple(result) : NULL;
}

PyDoc_STRVAR(
    measure_doc,
    "_measure(names, A, B, device, sets, rounds) -> tuple of lists of seconds, one list a "
    "variant\n\n"
    "Kernel times on GPU number device: in each round each variant named computes A @ B once, by "
    "turns,\n"
    "going through `sets` equal sets of operands. A sample that the host delayed is left out.");

/* The operands of a measurement, A and B in C or Fortran order; C, where the result is copied to, may
 * be NULL. */
static bool take_measured(PyObject *module, PyObject *A, PyObject *B, PyObject *C, Measurement *m)
{
    Strided a, b, c;
    if (!operand_array(A, "A", &a) || !operand_array(B, "B", &b) || !operand_shapes_agree(&a, &b) ||
        (C && (!operand_array(C, "C", &c) || !operand_has_result_shape(&c, "C", &a, &b, true) ||
               !operand_is_writable(!PyArray_ISWRITEABLE((PyArrayObject *)C), &c, true)))) {
        return false;
    }
    int gpus;
    const Status why = cuda_count(&gpus);
    if (m->device < 0 || m->device >= gpus) {
        PyErr_Format(((State *)PyModule_GetState(module))->DeviceError,
                     "kernel times are measured on a GPU, and there is no cuda:%d: %s", m->device,
                     why.message);
        return false;
    }
    if (m->sets < 1 || m->rounds < 0 || !PyArray_ISONESEGMENT((PyArrayObject *)A) ||
        !PyArray_ISONESEGMENT((PyArrayObject *)B) || !strided_as_matrix(&a, &m->A) ||
        !strided_as_matrix(&b, &m->B) ||
        (C && (!PyArray_IS_C_CONTIGUOUS((PyArrayObject *)C) || !strided_as_matrix(&c, &m->C)))) {
        PyErr_SetString(PyExc_ValueError,
                        "a measurement needs A and B in C or Fortran order, without gaps, C in C "
                        "order, sets >= 1 and rounds >= 0");
        return false;
    }
    return true;
}

/* Takes the samples, count a round. */
static PyObject *take_samples(PyObject *module, Measurement *m,
                              Status (*take)(const Measurement *measurement))
{
    m->seconds = calloc((size_t)m->rounds * (size_t)m->count + 1, sizeof *m->seconds);
    if (!m->seconds) {
        return PyErr_NoMemory();
    }
    PyThreadState *const thread = PyEval_SaveThread();
    const Status status = take(m);
    PyEval_RestoreThread(thread);
    PyObject *result = NULL;
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
    } else {
        result = seconds_by_variant(m->seconds, m->rounds, m->count);
    }
    free(m->seconds);
    return result;
}

static PyObject *measure(PyObject *module, PyObject *args)
{
    PyObject *names, *A, *B;
    Measurement m = {0};
    const Variant *variants[MOST_MEASURED];
    if (!PyArg_ParseTuple(args, "O!OOiii", &PyTuple_Type, &names, &A, &B, &m.device, &m.sets,
                          &m.rounds) ||
        !take_measured(module, A, B, NULL, &m) ||
        !take_variants(module, names, m.device, variants, &m.count)) {
        return NULL;
    }
    m.variants = variants;
    return take_samples(module, &m, device_kinds[DEVICE_CUDA]->measure);
}

PyDoc_STRVAR(
    measure_copies_doc,
    "_measure_copies(A, B, C, device, rounds) -> tuple of one list of seconds\n\n"
    "What run copies, by the host's clock: A and B to GPU number device, and a result back into "
    "C, whose\ncontent is undefined afterwards.");

static PyObject *measure_copies(PyObject *module, PyObject *args)
{
    PyObject *A, *B, *C;
    Measurement m = {.count = 1, .sets = 1};
    if (!PyArg_ParseTuple(args, "OOOii", &A, &B, &C, &m.device, &m.rounds) ||
        !take_measured(module, A, B, C, &m)) {
        return NULL;
    }
    return take_samples(module, &m, device_kinds[DEVICE_CUDA]->measure_copies);
}

/* ------------------------------------------------------------------ counting */

static PyObject *first_request(const Access *access)
{
    PyObject *const list = PyList_New(0);
    for (int lane = 0; list && lane < WARP; ++lane) {
        const long long offset = access->first[lane];
        if (!append(list, offset < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(offset))) {
            break;
        }
    }
    return list ? as_tuple(list) : NULL;
}

static PyObject *number_if(bool wanted, int64_t number)
{
    return wanted ? PyLong_FromLongLong(number) : Py_NewRef(Py_None);
}

static PyObject *access_as_dict(const Access *access)
{
    return Py_BuildValue(
        "{s:s, s:i, s:s, s:s, s:s, s:i, s:L, s:L, s:N, s:N, s:L, s:L, s:N}", "file", access->file,
        "line", access->line, "space", access->shared ? "shared" : "global", "operand",
        access->operand, "kind", access->store ? "store" : "load", "bytes_per_thread",
        access->bytes, "requests", (long long)access->requests, "lanes", (long long)access->lanes,
        "sectors", number_if(!access->shared, access->transactions), "wavefronts",
        number_if(access->shared, access->transactions), "least", (long long)access->least,
        "row_bytes", (long long)access->row_bytes, "first_request", first_request(access));
}

PyDoc_STRVAR(trace_doc,
             "_trace(variant, M, N, K) -> (rows, cols, tuple of dict)\n\n"
             "Counts the accesses of the first block of a product of (M, K) and (K, N), on the CPU "
             "device.");

static PyObject *trace(PyObject *module, PyObject *args)
{
    PyObject *name_argument;
    long long M, N, K;
    if (!PyArg_ParseTuple(args, "OLLL", &name_argument, &M, &N, &K)) {
        return NULL;
    }
    const char *const name = text_of(name_argument, "variant", "'vec4'");
    const Variant *const variant = name ? catalog_find(name) : NULL;
    if (!variant) {
        if (name) {
            refuse_variant(name);
        }
        return NULL;
    }
    if (!can_run(module, variant, DEVICE_CPU, 0)) {
        return NULL;
    }
    if (M < 1 || N < 1 || K < 1) {
        PyErr_Format(PyExc_ValueError,
                     "M, N and K must be at least 1 for there to be accesses to count, and are "
                     "%lld, %lld and %lld",
                     M, N, K);
        return NULL;
    }
    Counts *const counts = malloc(sizeof *counts);
    if (!counts) {
        return PyErr_NoMemory();
    }
    PyThreadState *thread = PyEval_SaveThread();
    const Interrupt interrupt = {signal_raised, &thread};
    const Status status = count_block(variant, M, N, K, &interrupt, counts);
    PyEval_RestoreThread(thread);
    PyObject *result = NULL;
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
    } else {
        PyObject *const list = PyList_New(0);
        for (int index = 0; list && index < counts->count; ++index) {
            if (!append(list, access_as_dict(&counts->accesses[index]))) {
                break;
            }
        }
        PyObject *const accesses = list ? as_tuple(list) : NULL;
        result = accesses ? Py_BuildValue("LLN", (long long)counts->rows, (long long)counts->cols,
                                          accesses)
                          : NULL;
    }
    free(counts);
    return result;
}

/* ------------------------------------------------------------------ the module */

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_VARARGS | METH_KEYWORDS, run_doc},
    {"_run_measured", (PyCFunction)(void (*)(void))run_measured, METH_VARARGS | METH_KEYWORDS,
     run_measured_doc},
    {"empty", empty, METH_O, empty_doc},
    {"_memory", result_memory, METH_NOARGS, NULL},
    {"_set_memory_limit", result_set_limit, METH_O, NULL},
    {"_empty_memory", result_empty_memory, METH_NOARGS, NULL},
    {"_variants", list_variants, METH_NOARGS, NULL},
    {"_devices", list_devices, METH_NOARGS, NULL},
    {"_cuda_problem", cuda_problem, METH_NOARGS, NULL},
    {"_build_info", build_info, METH_NOARGS, NULL},
    {"_open_cublas", open_cublas_at, METH_O, NULL},
    {"_measure", measure, METH_VARARGS, measure_doc},
    {"_measure_copies", measure_copies, METH_VARARGS, measure_copies_doc},
    {"_trace", trace, METH_VARARGS, trace_doc},
    {NULL, NULL, 0, NULL},
};

/* Makes an exception, keeps it in *place and puts it into the module. Steals bases, which may be
 * NULL. */
static bool add_exception(PyObject *module, PyObject **place, const char *name, const char *doc,
                          PyObject *bases)
{
    char full_name[64];
    PyOS_snprintf(full_name, sizeof full_name, "sgemm_kernels.%s", name);
    *place = bases ? PyErr_NewExceptionWithDoc(full_name, doc, bases, NULL) : NULL;
    Py_XDECREF(bases);
    return *place && PyModule_AddObjectRef(module, name, *place) == 0;
}

static int execute(PyObject *module)
{
    State *const state = PyModule_GetState(module);
    if (PyArray_ImportNumPyAPI() < 0) {
        return -1;
    }
    const bool done =
        add_exception(module, &state->Error, "Error", "The base of this package's own exceptions.",
                      PyTuple_Pack(1, PyExc_Exception)) &&
        add_exception(module, &state->DeviceError, "DeviceError",
                      "A device is not there, cannot be used, or failed.",
                      PyTuple_Pack(2, state->Error, PyExc_RuntimeError)) &&
        add_exception(module, &state->OutOfMemoryError, "OutOfMemoryError",
                      "The host or a device has too little memory.",
                      PyTuple_Pack(2, state->DeviceError, PyExc_MemoryError)) &&
        add_exception(module, &state->UnsupportedVariantError, "UnsupportedVariantError",
                      "The variant cannot run on that device, or lacks the library that it needs.",
                      PyTuple_Pack(1, state->Error));
    state->DeviceArray = done ? device_array_make_type(module) : NULL;
    return state->DeviceArray && PyModule_AddType(module, (PyTypeObject *)state->DeviceArray) == 0
               ? 0
               : -1;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    const State *const state = PyModule_GetState(module);
    Py_VISIT(state->Error);
    Py_VISIT(state->DeviceError);
    Py_VISIT(state->OutOfMemoryError);
    Py_VISIT(state->UnsupportedVariantError);
    Py_VISIT(state->DeviceArray);
    return 0;
}

static int clear(PyObject *module)
{
    State *const state = PyModule_GetState(module);
    Py_CLEAR(state->Error);
    Py_CLEAR(state->DeviceError);
    Py_CLEAR(state->OutOfMemoryError);
    Py_CLEAR(state->UnsupportedVariantError);
    Py_CLEAR(state->DeviceArray);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sgemm_kernels._core",
    .m_doc = "The C extension under sgemm_kernels.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
