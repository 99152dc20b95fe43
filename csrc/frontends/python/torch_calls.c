#include "torch_calls.h"

#include <stdio.h>
#include <string.h>

#include "../../runtime/device.h"
#include "../torch/dispatch_override.h"
#include "../torch/operators.h"
#include "dlpack_exchange.h"
#include "raising.h"

static PyObject *none_or_raise(PyObject *module, const Status *status)
{
    if (status->code == STATUS_OK) {
        return Py_NewRef(Py_None);
    }
    raise_status(module, status);
    return NULL;
}

PyObject *torch_open(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    const Status status = torch_abi_open();
    return none_or_raise(module, &status);
}

/* Calls sgemm_kernels._cublas.load(). */
static bool open_library(char *message)
{
#ifdef SGEMM_CUDA
    if (cublas_is_open()) {
        return true;
    }
#endif
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *const loader = PyImport_ImportModule("sgemm_kernels._cublas");
    PyObject *const done = loader ? PyObject_CallMethod(loader, "load", NULL) : NULL;
    const bool opened = done != NULL;
    Py_XDECREF(loader);
    Py_XDECREF(done);
    if (!opened) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        PyObject *const text = error ? PyObject_Str(error) : NULL;
        PyObject *const bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
        snprintf(message, TORCH_MESSAGE_BYTES, "%s",
                 bytes ? PyBytes_AsString(bytes) : "the library cannot be loaded");
        Py_XDECREF(bytes);
        Py_XDECREF(text);
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        PyErr_Clear();
    }
    PyGILState_Release(state);
    return opened;
}

PyObject *torch_register(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    torch_open_library = open_library;
    const Status status = torch_add_operators();
    return none_or_raise(module, &status);
}

PyObject *torch_precision(PyObject *Py_UNUSED(module), PyObject *args)
{
    int backend, operation;
    if (!PyArg_ParseTuple(args, "ii", &backend, &operation)) {
        return NULL;
    }
    if (!torch_abi.precision) {
        return Py_NewRef(Py_None);
    }
    return PyLong_FromLong(torch_abi.precision(torch_abi.context, backend, operation));
}

/* ------------------------------------------------------------------ on and off */

/* Returns True if PyTorch may use less than float32's precision for products. */
static PyObject *reduced_function;

static bool ask_reduced(void)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *const answer = PyObject_CallNoArgs(reduced_function);
    const bool reduced = answer == NULL || PyObject_IsTrue(answer) != 0;
    Py_XDECREF(answer);
    PyErr_Clear();
    PyGILState_Release(state);
    return reduced;
}

PyObject *torch_start(PyObject *module, PyObject *args)
{
    TorchSettings settings = {.reduced = NULL};
    const char *key, *variant;
    PyObject *reduced;
    if (!PyArg_ParseTuple(args, "ssdO", &key, &variant, &settings.min_flops, &reduced)) {
        return NULL;
    }
    if (strlen(variant) >= sizeof settings.variant) {
        PyErr_Format(PyExc_ValueError, "there is no variant '%s'", variant);
        return NULL;
    }
    strcpy(settings.variant, variant);
    if (!Py_IsNone(reduced)) {
        PyObject *const old = reduced_function;
        reduced_function = Py_NewRef(reduced);
        Py_XDECREF(old);
        settings.reduced = ask_reduced;
    }
    const Status status = torch_override_dispatch(key, &settings);
    return none_or_raise(module, &status);
}

PyObject *torch_stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    torch_give_back();
    return Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------ counts */

PyObject *torch_stats(PyObject *Py_UNUSED(module), PyObject *reset)
{
    int64_t counts[TORCH_OPERATORS][TORCH_OUTCOMES];
    char failure[TORCH_MESSAGE_BYTES];
    torch_counts(counts, PyObject_IsTrue(reset) == 1);
    torch_last_failure(failure);
    PyObject *const all = PyDict_New();
    for (int i = 0; all && i < TORCH_OPERATORS; ++i) {
        PyObject *const one = PyDict_New();
        int error = !one || PyDict_SetItemString(all, torch_operator_names[i], one);
        for (int j = 0; !error && j < TORCH_OUTCOMES; ++j) {
            PyObject *const count = PyLong_FromLongLong(counts[i][j]);
            error = !count || PyDict_SetItemString(one, torch_outcome_names[j], count);
            Py_XDECREF(count);
        }
        Py_XDECREF(one);
        if (error) {
            Py_DECREF(all);
            return NULL;
        }
    }
    return Py_BuildValue("(Ns)", all, failure);
}

/* ------------------------------------------------------------------ scalars and out_dtype */

typedef struct {
    TorchOperator op;
    bool batched, adds, typed; /* typed: the last positional argument is out_dtype */
    bool has_out, in_place;
} Kernel;

static const DlExchange *exchange; /* of torch.Tensor */
static const PyObject *float32;    /* torch.float32 */

static int dtype_of(const DlTensor *tensor)
{
    const int code = tensor->element.code;
    const int bits = tensor->element.lanes == 1 ? tensor->element.bits : 0;
    return code == DLPACK_FLOAT && bits == 32    ? SGEMM_KERNELS_FLOAT32
           : code == DLPACK_FLOAT && bits == 16  ? SGEMM_KERNELS_FLOAT16
           : code == DLPACK_BFLOAT && bits == 16 ? SGEMM_KERNELS_BFLOAT16
                                                 : TORCH_OTHER_DTYPE;
}

static bool view(PyObject *tensor, TorchTensor *seen)
{
    DlTensor borrowed;
    if (!dlpack_exchange_view(exchange, tensor, &borrowed)) {
        return false;
    }
    *seen = (TorchTensor){.data = (char *)borrowed.data + borrowed.byte_offset,
                          .dims = borrowed.dimensions,
                          .sizes = borrowed.shape,
                          .strides = borrowed.strides,
                          .dtype = dtype_of(&borrowed),
                          .device = borrowed.device.kind == DLPACK_GPU   ? borrowed.device.index
                                    : borrowed.device.kind == DLPACK_CPU ? TORCH_CPU
                                                                         : TORCH_OTHER_DEVICE};
    return true;
}

static void ignore_error(void *Py_UNUSED(context), const char *Py_UNUSED(kind),
                         const char *Py_UNUSED(message))
{}

/* Allocates the result with PyTorch; the view is valid as long as the managed tensor. */
static DlVersioned *new_tensor(int device, const int64_t result[3], bool batched, TorchTensor *seen)
{
    const int first = batched ? 0 : 1;
    int64_t shape[] = {result[0], result[1], result[2]};
    int64_t strides[] = {result[1] * result[2], result[2], 1}; /* nothing is empty here */
    DlTensor like = {.device = {device < 0 ? DLPACK_CPU : DLPACK_GPU, device < 0 ? 0 : device},
                     .dimensions = 3 - first,
                     .element = {DLPACK_FLOAT, 32, 1},
                     .shape = shape + first,
                     .strides = strides + first};
    DlVersioned *made = NULL;
    for (int tries = 0; exchange->allocate(&like, &made, NULL, ignore_error) != 0; ++tries) {
        PyErr_Clear();
        bool freed = false;
        if (tries == 0) {
            Py_BEGIN_ALLOW_THREADS freed = torch_free_idle(device);
            Py_END_ALLOW_THREADS
        }
        if (!freed) {
            return NULL;
        }
    }
    *seen = (TorchTensor){.data = (char *)made->tensor.data + made->tensor.byte_offset,
                          .dims = made->tensor.dimensions,
                          .sizes = made->tensor.shape,
                          .strides = made->tensor.strides,
                          .dtype = SGEMM_KERNELS_FLOAT32,
                          .device = device};
    return made;
}

/* Reads a scalar argument. False, without an exception, if it is not a real number. */
static bool real(PyObject *number, float *value)
{
    const double wide = PyFloat_AsDouble(number);
    *value = (float)wide;
    if (wide == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    return true;
}

/* Reads the arguments that are passed by name; *out is NULL if there is none. False if the call has
 * another form. */
static bool read_named(PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **out,
                       PyObject **beta, PyObject **alpha)
{
    *out = *beta = *alpha = NULL;
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; ++i) {
        PyObject *const name = PyTuple_GetItem(names, i);
        PyObject **const place = PyUnicode_CompareWithASCIIString(name, "beta") == 0    ? beta
                                 : PyUnicode_CompareWithASCIIString(name, "alpha") == 0 ? alpha
                                 : PyUnicode_CompareWithASCIIString(name, "out") == 0   ? out
                                                                                        : NULL;
        if (!place) {
            return false;
        }
        *place = args[count + i];
    }
    return true;
}

/* Computes a call. *result is a new reference if the outcome is TORCH_TAKEN. Sets an exception if
 * it is TORCH_RAISED. */
static TorchOutcome compute(const Kernel *kernel, PyObject *const *args, Py_ssize_t count,
                            PyObject *names, PyObject **result)
{
    const TorchSettings *const settings = torch_settings();
    TorchProduct product = {.batched = kernel->batched,
                            .adds = kernel->adds,
                            .alpha = 1.0f,
                            .beta = kernel->adds ? 1.0f : 0.0f};
    PyObject *out, *beta, *alpha;
    char message[TORCH_MESSAGE_BYTES] = "";
    PyObject *const *const factors = args + kernel->adds;
    if (count != kernel->adds + 2 + kernel->typed ||
        !read_named(args, count, names, &out, &beta, &alpha) || (kernel->has_out && !out) ||
        (beta && !real(beta, &product.beta)) || (alpha && !real(alpha, &product.alpha))) {
        return TORCH_LEFT_SCALAR;
    }
    if (kernel->typed && factors[2] != float32) {
        return TORCH_LEFT_DTYPE;
    }
    out = kernel->in_place ? args[0] : out;
    if ((kernel->adds && !view(args[0], &product.C)) || !view(factors[0], &product.A) ||
        !view(factors[1], &product.B)) {
        return TORCH_LEFT_LAYOUT;
    }
    int64_t shape[3];
    TorchOutcome outcome = torch_decide(settings, &product, kernel->typed, shape, message);
    if (outcome != TORCH_TAKEN) {
        return outcome;
    }
    DlVersioned *made = NULL;
    if (out) {
        if (!view(out, &product.out)) {
            return TORCH_LEFT_LAYOUT;
        }
        if (product.out.dtype != SGEMM_KERNELS_FLOAT32) {
            return TORCH_LEFT_DTYPE;
        }
        if (product.out.device != product.A.device) {
            return TORCH_LEFT_DEVICE;
        }
        if (!torch_has_shape(&product.out, shape, kernel->batched)) {
            return TORCH_LEFT_SHAPE;
        }
    } else {
        made = new_tensor(product.A.device, shape, kernel->batched, &product.out);
        if (!made) {
            return TORCH_LEFT_FAILED;
        }
    }
    void *stream;
    if (!torch_stream(product.A.device, &stream)) {
        outcome = TORCH_LEFT_DEVICE;
    } else {
        int code;
        Py_BEGIN_ALLOW_THREADS code =
            torch_multiply(settings->variant, stream, &product, shape, message);
        Py_END_ALLOW_THREADS outcome = torch_outcome(code, message);
        if (outcome == TORCH_RAISED) {
            PyErr_SetString(PyExc_RuntimeError, message);
        }
    }
    void *object = NULL;
    if (made && (outcome != TORCH_TAKEN || exchange->to_object(made, &object) != 0)) {
        PyErr_Clear();
        made->deleter(made);
        return outcome == TORCH_TAKEN ? TORCH_LEFT_FAILED : outcome;
    }
    if (outcome == TORCH_TAKEN) {
        *result = made ? object : Py_NewRef(out);
    }
    return outcome;
}

/* Calls PyTorch's own kernel. */
static PyObject *fall_back(PyObject *fallback, PyObject *const *args, Py_ssize_t count,
                           PyObject *names)
{
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    PyObject *const positional = PyTuple_New(count);
    PyObject *const by_name = PyDict_New();
    bool ready = positional && by_name;
    for (Py_ssize_t i = 0; ready && i < count; ++i) {
        ready = PyTuple_SetItem(positional, i, Py_NewRef(args[i])) == 0;
    }
    for (Py_ssize_t i = 0; ready && i < named; ++i) {
        ready = PyDict_SetItem(by_name, PyTuple_GetItem(names, i), args[count + i]) == 0;
    }
    PyObject *const result = ready ? PyObject_Call(fallback, positional, by_name) : NULL;
    Py_XDECREF(positional);
    Py_XDECREF(by_name);
    return result;
}

static PyObject *call(const Kernel *kernel, PyObject *fallback, PyObject *const *args,
                      Py_ssize_t count, PyObject *names)
{
    if (!torch_settings()) { /* never started */
        return fall_back(fallback, args, count, names);
    }
    PyObject *result = NULL;
    const TorchOutcome outcome = compute(kernel, args, count, names, &result);
    torch_count(kernel->op, outcome);
    if (outcome == TORCH_TAKEN || outcome == TORCH_RAISED) {
        return result;
    }
    return fall_back(fallback, args, count, names);
}

/* A method whose `self` is the kernel that it replaces. */
#define METHOD(function, ...)                                                                      \
    static PyObject *function(PyObject *self, PyObject *const *args, Py_ssize_t count,             \
                              PyObject *names)                                                     \
    {                                                                                              \
        static const Kernel kernel = {__VA_ARGS__};                                                \
        return call(&kernel, self, args, count, names);                                            \
    }
METHOD(addmm, TORCH_ADDMM, .adds = true)
METHOD(addmm_out, TORCH_ADDMM_OUT, .adds = true, .has_out = true)
METHOD(addmm_in_place, TORCH_ADDMM_IN_PLACE, .adds = true, .in_place = true)
METHOD(baddbmm, TORCH_BADDBMM, .batched = true, .adds = true)
METHOD(baddbmm_out, TORCH_BADDBMM_OUT, .batched = true, .adds = true, .has_out = true)
METHOD(baddbmm_in_place, TORCH_BADDBMM_IN_PLACE, .batched = true, .adds = true, .in_place = true)
METHOD(mm_dtype, TORCH_MM_DTYPE, .typed = true)
METHOD(mm_dtype_out, TORCH_MM_DTYPE_OUT, .typed = true, .has_out = true)
METHOD(bmm_dtype, TORCH_BMM_DTYPE, .batched = true, .typed = true)
METHOD(bmm_dtype_out, TORCH_BMM_DTYPE_OUT, .batched = true, .typed = true, .has_out = true)
METHOD(addmm_dtype, TORCH_ADDMM_DTYPE, .adds = true, .typed = true)
METHOD(addmm_dtype_out, TORCH_ADDMM_DTYPE_OUT, .adds = true, .typed = true, .has_out = true)
METHOD(baddbmm_dtype, TORCH_BADDBMM_DTYPE, .batched = true, .adds = true, .typed = true)
METHOD(baddbmm_dtype_out, TORCH_BADDBMM_DTYPE_OUT, .batched = true, .adds = true, .typed = true,
       .has_out = true)

#define ENTRY(name, function)                                                                      \
    {                                                                                              \
        name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, NULL           \
    }

PyObject *torch_kernel(PyObject *module, PyObject *args)
{
    static PyMethodDef methods[] = {
        ENTRY("addmm", addmm),
        ENTRY("addmm.out", addmm_out),
        ENTRY("addmm_", addmm_in_place),
        ENTRY("baddbmm", baddbmm),
        ENTRY("baddbmm.out", baddbmm_out),
        ENTRY("baddbmm_", baddbmm_in_place),
        ENTRY("mm.dtype", mm_dtype),
        ENTRY("mm.dtype_out", mm_dtype_out),
        ENTRY("bmm.dtype", bmm_dtype),
        ENTRY("bmm.dtype_out", bmm_dtype_out),
        ENTRY("addmm.dtype", addmm_dtype),
        ENTRY("addmm.dtype_out", addmm_dtype_out),
        ENTRY("baddbmm.dtype", baddbmm_dtype),
        ENTRY("baddbmm.dtype_out", baddbmm_dtype_out),
    };
    const char *name;
    PyObject *fallback, *example;
    if (!PyArg_ParseTuple(args, "sOO", &name, &fallback, &example)) {
        return NULL;
    }
    exchange = dlpack_exchange_of(module, example);
    if (!exchange) {
        PyErr_SetString(PyExc_RuntimeError, "torch.Tensor lacks __dlpack_c_exchange_api__");
        return NULL;
    }
    PyObject *const dtype = PyObject_GetAttrString(example, "dtype");
    if (!dtype) {
        return NULL;
    }
    float32 = dtype;
    Py_DECREF(dtype); /* PyTorch keeps its dtypes as long as the process */
    for (size_t i = 0; i < sizeof methods / sizeof *methods; ++i) {
        if (!strcmp(methods[i].ml_name, name)) {
            return PyCFunction_NewEx(&methods[i], fallback, NULL);
        }
    }
    PyErr_Format(PyExc_ValueError, "there is no kernel for '%s'", name);
    return NULL;
}
