/* The extension's face: its methods, its types, and the arguments of run(). */
#define SGEMM_DEFINES_NUMPY
#include "python/python.h"

#include <fenv.h>

#include "core/catalog.h"
#include "core/threads.h"
#include "python/attributes.h"
#include "python/choosing.h"
#include "python/describing.h"
#include "python/device_array.h"
#include "python/measuring.h"
#include "python/own.h"
#include "python/planning.h"
#include "python/raising.h"
#include "python/result.h"
#include "python/running.h"
#include "python/state.h"
#include "python/tracing.h"

/* ------------------------------------------------------------------ run */

/* Whether the call begins with a kernel's name; sets TypeError if not. For run(A, B) the parser's
 * message would be that a third argument is missing. */
static bool begins_with_name(PyObject *args, PyObject *keywords)
{
    static const char call[] = "run('auto', A, B)";
    const Py_ssize_t count = PyTuple_Size(args);
    PyObject *const first = count > 0  ? PyTuple_GetItem(args, 0)
                            : keywords ? PyDict_GetItemString(keywords, "variant")
                                       : NULL;
    if (!first) {
        PyErr_Format(PyExc_TypeError, "the first argument is the kernel's name: call %s", call);
    } else if (!PyUnicode_Check(first) && !PyCapsule_CheckExact(first)) {
        const int is_kernel = has_attribute(first, "__sgemm_run__");
        PyObject *const type = is_kernel ? NULL : PyType_GetName(Py_TYPE(first));
        if (type) {
            PyErr_Format(PyExc_TypeError,
                         "the first argument, variant, is the kernel's name, and is of type %U: "
                         "call %s",
                         type, call);
            Py_DECREF(type);
        }
    } else if (count > 3) {
        PyErr_Format(PyExc_TypeError,
                     "run() takes 3 arguments by position, and got %zd: pass the others by name, "
                     "as run('auto', A, B, C=C, beta=1)",
                     count);
    }
    return !PyErr_Occurred();
}

static PyObject *call_run(PyObject *module, PyObject *args, PyObject *keywords,
                          const Variant *(*find)(const char *name))
{
    static char *names[] = {"variant", "A",   "B",      "C",      "alpha",
                            "beta",    "out", "device", "stream", NULL};
    PyObject *name;
    RunArguments a = {.C = Py_None, .out = Py_None, .device = Py_None, .stream = Py_None};
    if (!begins_with_name(args, keywords) ||
        !PyArg_ParseTupleAndKeywords(args, keywords, "OOO|$OOOOOO:run", names, &name, &a.A, &a.B,
                                     &a.C, &a.alpha, &a.beta, &a.out, &a.device, &a.stream)) {
        return NULL;
    }
    PyObject *const own = own_kernel_run(name, args, keywords);
    if (own || PyErr_Occurred()) {
        return own;
    }
    a.variant = choose_variant(name, find);
    if (!a.variant) {
        return NULL;
    }
    /* Some libraries have their process's floats flushed to zero or trap: not in here, where alpha
     * and beta are rounded and compared. */
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    PyObject *const result = run_product(module, &a);
    fesetenv(&environment);
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
    "variant : str or Kernel\n"
    "    A name from variants(), as 'naive' or 'vec4', or what kernel() made of your own.\n"
    "A : array of float32, shape (M, K)\n"
    "B : array of float32, shape (K, N)\n"
    "C : array of float32, shape (M, N), optional\n"
    "    Needed when beta is not 0, and not read when it is 0, which it is unless given: C "
    "without\n"
    "    beta is not added, and a UserWarning says so. A, B and C may have any strides, alignment\n"
    "    and byte order, and are not changed. They and out are all numpy.ndarray, or all on one\n"
    "    GPU: arrays of any library that lends them by __dlpack__ or __cuda_array_interface__, as\n"
    "    CuPy, PyTorch, Numba and JAX do, or DeviceArray. Those are used where they lie.\n"
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
    "    whatever the default; with 'cuda:all' the other GPUs help it. In a build for AMD GPUs "
    "these\n"
    "    are 'hip', 'hip:<index>' and 'hip:all'.\n"
    "stream : CUDA stream or int, optional\n"
    "    For arrays on a GPU: the stream to work in, as one of CuPy, of PyTorch or of any library\n"
    "    with __cuda_stream__, or its handle. The call returns when the work is queued there, "
    "after\n"
    "    the work that made the operands; their memory must not be used for anything else before\n"
    "    the stream has passed. With None the call waits for the operands, and the result is "
    "there\n"
    "    when it returns.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "numpy.ndarray or DeviceArray of float32, shape (M, N)\n"
    "    out if given, else a new C-contiguous array: a DeviceArray if the operands are on a GPU.\n"
    "    Each element is within ``gamma(K + 3) * (|alpha| |A| |B| + |beta| |C|)`` of the exact "
    "value,\n"
    "    underflow aside: ``gamma(n) = n u / (1 - n u)``, ``u = 2**-24`` (Higham, Accuracy and "
    "Stability\n"
    "    of Numerical Algorithms, section 3.5).\n"
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
    return call_run(module, args, keywords, catalog_find);
}

PyDoc_STRVAR(
    run_measured_doc,
    "run, of what may be measured: the reference in reduced precision, 'cublas-tf32', too. "
    "The\nbound of run is not one for that.");

static PyObject *run_measured(PyObject *module, PyObject *args, PyObject *keywords)
{
    return call_run(module, args, keywords, catalog_find_measured);
}

/* ------------------------------------------------------------------ the module */

static PyObject *set_usable_cores(PyObject *Py_UNUSED(module), PyObject *args)
{
    int number, quota;
    if (!PyArg_ParseTuple(args, "ii", &number, &quota)) {
        return NULL;
    }
    usable_cores_set(number, quota);
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_VARARGS | METH_KEYWORDS, run_doc},
    {"_run_measured", (PyCFunction)(void (*)(void))run_measured, METH_VARARGS | METH_KEYWORDS,
     run_measured_doc},
    {"empty", result_empty, METH_O, empty_doc},
    {"_memory", result_memory, METH_NOARGS, NULL},
    {"_set_memory_limit", result_set_limit, METH_O, NULL},
    {"_empty_memory", result_empty_memory, METH_NOARGS, NULL},
    {"_set_usable_cores", set_usable_cores, METH_VARARGS, NULL},
    {"_plan_constants", plan_constants_of, METH_VARARGS, plan_constants_doc},
    {"_keep_plan_constants", keep_plan_constants, METH_VARARGS, keep_plan_constants_doc},
    {"_variants", describe_variants, METH_NOARGS, NULL},
    {"_devices", describe_devices, METH_NOARGS, NULL},
    {"_cuda_problem", describe_cuda_problem, METH_NOARGS, NULL},
    {"_build_info", describe_build, METH_NOARGS, NULL},
    {"_open_cublas", open_cublas_at, METH_O, NULL},
    {"_measure", measure, METH_VARARGS, measure_doc},
    {"_measure_copies", measure_copies, METH_VARARGS, measure_copies_doc},
    {"_trace", trace, METH_VARARGS, trace_doc},
    {"_open_kernel", open_kernel, METH_VARARGS, open_kernel_doc},
    {"_add_gpu_code", add_gpu_code, METH_VARARGS, add_gpu_code_doc},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    State *const state = state_of(module);
    if (PyArray_ImportNumPyAPI() < 0 || !raising_add_exceptions(module)) {
        return -1;
    }
    if (PyModule_AddStringConstant(module, "_GPU_KIND", GPU_KIND) < 0 ||
        PyModule_AddStringConstant(module, "_REFERENCE", GPU_REFERENCE) < 0) {
        return -1;
    }
    state->DeviceArray = device_array_make_type(module);
    return state->DeviceArray && PyModule_AddType(module, (PyTypeObject *)state->DeviceArray) == 0
               ? 0
               : -1;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    const State *const state = state_of(module);
    Py_VISIT(state->Error);
    Py_VISIT(state->DeviceError);
    Py_VISIT(state->OutOfMemoryError);
    Py_VISIT(state->UnsupportedVariantError);
    Py_VISIT(state->DeviceArray);
    return 0;
}

static int clear(PyObject *module)
{
    State *const state = state_of(module);
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
