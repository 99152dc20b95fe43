/* The extension module: its methods, its types, and the arguments of run(). */
#define SGEMM_DEFINES_NUMPY
#include "frontends/python/python.h"

#include <fenv.h>

#include "base/threads.h"
#include "frontends/c/sgemm_kernels.h"
#include "frontends/python/attributes.h"
#include "frontends/python/choosing.h"
#include "frontends/python/custom.h"
#include "frontends/python/describing.h"
#include "frontends/python/device_array.h"
#include "frontends/python/measuring.h"
#include "frontends/python/planning.h"
#include "frontends/python/preloaded.h"
#include "frontends/python/prepared.h"
#include "frontends/python/raising.h"
#include "frontends/python/result.h"
#include "frontends/python/running.h"
#include "frontends/python/running_many.h"
#include "frontends/python/state.h"
#include "frontends/python/torch_calls.h"
#include "frontends/python/tracing.h"
#include "runtime/catalog.h"
#include "runtime/limits.h"

/* ------------------------------------------------------------------ run */

/* Whether the first argument is a kernel's name; sets TypeError if not. Without this check, the
 * error for run(A, B) would say that a third argument is missing. */
static bool first_is_name(PyObject *args, PyObject *keywords)
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
                         "the first argument, variant, must be the kernel's name, not %U: call %s",
                         type, call);
            Py_DECREF(type);
        }
    } else if (count > 3) {
        PyErr_Format(PyExc_TypeError,
                     "run() takes 3 positional arguments but got %zd: pass the others by name, as "
                     "in run('auto', A, B, C=C, beta=1)",
                     count);
    }
    return !PyErr_Occurred();
}

static const char *const keyword_names[RUN_KEYWORDS] = {"C",   "alpha",  "beta",
                                                        "out", "device", "stream"};

/* Stores the keyword arguments of a plain call, run('name', A, B, ...). Returns false, without an
 * exception, if an argument is unusual; multiply_parsed then takes it or reports the error. */
static bool take_plain(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names,
                       RunArguments *a)
{
    PyObject *const *const known = state_of(module)->keywords;
    PyObject **const places[RUN_KEYWORDS] = {&a->C,   &a->alpha,  &a->beta,
                                             &a->out, &a->device, &a->stream};
    if (count != 3 || !PyUnicode_CheckExact(args[0])) {
        return false;
    }
    a->A = args[1];
    a->B = args[2];
    for (Py_ssize_t index = 0; names && index < PyTuple_Size(names); ++index) {
        int keyword = 0;
        while (keyword < RUN_KEYWORDS && known[keyword] != PyTuple_GetItem(names, index)) {
            ++keyword;
        }
        if (keyword == RUN_KEYWORDS) {
            return false;
        }
        *places[keyword] = args[count + index];
    }
    return true;
}

static PyObject *multiply(PyObject *module, PyObject *name, RunArguments *a,
                          const Variant *(*find)(const char *name))
{
    a->variant = choose_variant(name, find);
    if (!a->variant) {
        return NULL;
    }
    /* Some libraries make floating-point operations flush to zero or trap. Undo that while alpha
     * and beta are rounded and compared. */
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    PyObject *const result = run_product(module, a);
    fesetenv(&environment);
    return result;
}

/* The same for arguments that take_plain does not take. */
static PyObject *multiply_parsed(PyObject *module, PyObject *args, PyObject *keywords,
                                 const Variant *(*find)(const char *name))
{
    static char *names[] = {"variant", "A",   "B",      "C",      "alpha",
                            "beta",    "out", "device", "stream", NULL};
    PyObject *name;
    RunArguments a = {.C = Py_None, .out = Py_None, .device = Py_None, .stream = Py_None};
    if (!first_is_name(args, keywords) ||
        !PyArg_ParseTupleAndKeywords(args, keywords, "OOO|$OOOOOO:run", names, &name, &a.A, &a.B,
                                     &a.C, &a.alpha, &a.beta, &a.out, &a.device, &a.stream)) {
        return NULL;
    }
    PyObject *const own = custom_kernel_run(name, args, keywords);
    return own || PyErr_Occurred() ? own : multiply(module, name, &a, find);
}

static PyObject *call_run(PyObject *module, PyObject *const *args, Py_ssize_t count,
                          PyObject *names, const Variant *(*find)(const char *name))
{
    RunArguments a = {.C = Py_None, .out = Py_None, .device = Py_None, .stream = Py_None};
    if (take_plain(module, args, count, names, &a)) {
        return multiply(module, args[0], &a, find);
    }
    PyObject *const positional = PyTuple_New(count), *const keywords = PyDict_New();
    bool done = positional && keywords;
    for (Py_ssize_t index = 0; done && index < count; ++index) {
        done = PyTuple_SetItem(positional, index, Py_NewRef(args[index])) == 0;
    }
    for (Py_ssize_t index = 0; done && names && index < PyTuple_Size(names); ++index) {
        done = PyDict_SetItem(keywords, PyTuple_GetItem(names, index), args[count + index]) == 0;
    }
    PyObject *const result = done ? multiply_parsed(module, positional, keywords, find) : NULL;
    Py_XDECREF(keywords);
    Py_XDECREF(positional);
    return result;
}

PyDoc_STRVAR(
    run_doc,
    "run(variant, A, B, *, C=None, alpha=1.0, beta=0.0, out=None, device=None, stream=None)\n"
    "--\n"
    "\n"
    "Compute alpha * A @ B + beta * C with one kernel variant.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "variant : str or Kernel\n"
    "    A name from variants(), such as 'naive' or 'vec4', or a custom kernel from kernel().\n"
    "A : array of float32, float16 or bfloat16, shape (..., M, K) or (K,)\n"
    "B : array of float32, float16 or bfloat16, shape (..., K, N) or (K,)\n"
    "    As for numpy.matmul: leading dimensions are a batch and are broadcast, without copies.\n"
    "    A and B may have different types. 'auto' multiplies two of one 16-bit type as they are,\n"
    "    on a GPU of compute capability 9.0. Otherwise they are converted to float32 first.\n"
    "C : array of float32, shape (..., M, N), optional\n"
    "    Its leading dimensions are broadcast to those of the result.\n"
    "    Required if beta is not 0. It is not read if beta is 0, the default; passing C without\n"
    "    beta gives a UserWarning. A, B and C may have any strides, alignment and byte order,\n"
    "    and are not changed. A, B, C and out must all be in host memory, or all be on one GPU.\n"
    "    In host memory they are numpy.ndarray, or tensors of PyTorch 2.10 and newer. Arrays on a\n"
    "    GPU may be DeviceArray or belong to any library that exports them with __dlpack__ or\n"
    "    __cuda_array_interface__, such as CuPy, PyTorch, Numba and JAX. They are not copied,\n"
    "    unless the kernel takes contiguous matrices, as 'naive' to 'raster' do.\n"
    "alpha, beta : float\n"
    "    Rounded to float32 first. If alpha is 0, A and B are not read.\n"
    "out : array of float32, shape of the result, optional\n"
    "    Receives the result: writable, with any strides. It may be C, and may overlap A, B or\n"
    "    C: the result is as if they had been copied first. After an exception its content is\n"
    "    undefined.\n"
    "device : str, optional\n"
    "    'cpu', 'cuda' (the first usable GPU), 'cuda:<index>', or 'cuda:all', which divides the\n"
    "    rows of A and C, or the batch, over all usable GPUs. The default, None, is the first\n"
    "    usable GPU. If there is none, it is the CPU device, with one RuntimeWarning per process.\n"
    "    For arrays on a GPU, the default is their GPU; with 'cuda:all' the other GPUs help. In a\n"
    "    build for AMD GPUs the names are 'hip', 'hip:<index>' and 'hip:all'.\n"
    "stream : CUDA stream or int, optional\n"
    "    Only for arrays on a GPU: a stream of CuPy, PyTorch or any library with\n"
    "    __cuda_stream__, or its handle. The call queues its work in this stream, after the\n"
    "    work that made the operands, and returns. Do not reuse the operands' memory until the\n"
    "    stream has finished this work. With None, arrays of a library that offers DLPack's\n"
    "    exchange API, such as PyTorch 2.10 and newer, are queued in that library's current\n"
    "    stream, and the call returns at once. With other arrays, the call waits for the\n"
    "    operands, and the result is complete when it returns.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "array of float32, shape (..., M, N)\n"
    "    Without M if A is a vector, and without N if B is. out if given; otherwise a new\n"
    "    C-contiguous array: of A's library if that offers DLPack's exchange API, such as a\n"
    "    torch.Tensor; otherwise a numpy.ndarray (of two vectors a numpy.float32), or on a GPU a\n"
    "    DeviceArray. With a `stream` that is not the library's current one it is a DeviceArray,\n"
    "    which other libraries import without a copy. Each element is within\n"
    "    ``gamma(K + 3) * (|alpha| |A| |B| + |beta| |C|)`` of the exact value, underflow aside:\n"
    "    ``gamma(n) = n u / (1 - n u)``, ``u = 2**-24`` (Higham, Accuracy and Stability of\n"
    "    Numerical Algorithms, section 3.5).\n"
    "\n"
    "Raises\n"
    "------\n"
    "TypeError\n"
    "    An argument has the wrong type or dtype, or arrays are partly on the host and partly\n"
    "    on a GPU. run() never converts or moves them silently.\n"
    "ValueError\n"
    "    Shapes do not fit, out is read-only or overlaps itself, beta is not 0 but C is\n"
    "    missing, operands are on two GPUs or not on `device`, a tensor requires a gradient, or\n"
    "    the variant, device name or stream does not exist.\n"
    "UnsupportedVariantError\n"
    "    The variant cannot run on that device.\n"
    "OutOfMemoryError\n"
    "    The host or the device is out of memory.\n"
    "DeviceError\n"
    "    The device is missing or failed.\n"
    "KeyboardInterrupt\n"
    "    Ctrl-C: within about a second on the CPU device, between pieces of the result on a\n"
    "    GPU.\n"
    "\n"
    "run() releases the GIL while it copies and computes. Any number of threads may call it\n"
    "concurrently.");

static PyObject *run(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return call_run(module, args, count, names, catalog_find);
}

PyDoc_STRVAR(
    gram_doc,
    "gram(variant, A, *, C=None, alpha=1.0, beta=0.0, out=None, device=None, stream=None)\n"
    "--\n"
    "\n"
    "Compute alpha * A @ A.mT + beta * C with one kernel variant: inner products of all rows of "
    "A.\n"
    "\n"
    "This is run(variant, A, A.mT, ...), also for arrays whose transpose would be a copy. For the\n"
    "columns of X, pass X.mT.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "variant : str\n"
    "    A name from variants(). 'auto' and 'simt' compute half of the results, and store each\n"
    "    twice: without C the result is exactly symmetric, whatever the shape. With a symmetric C\n"
    "    it is, too.\n"
    "A : array of float32, float16 or bfloat16, shape (..., M, K)\n"
    "    The leading dimensions are a batch.\n"
    "C, alpha, beta, out, device, stream\n"
    "    As for run(). With device 'cuda:all', and if the memory of a GPU is short, all results "
    "are\n"
    "    computed, and the result need not be exactly symmetric.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "array of float32, shape (..., M, M)\n"
    "    As for run(), with the same error bound.\n"
    "\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    A has fewer than two dimensions, or an error of run().");

static PyObject *gram(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"variant", "A", "C", "alpha", "beta", "out", "device", "stream", NULL};
    PyObject *name;
    RunArguments a = {
        .C = Py_None, .out = Py_None, .device = Py_None, .stream = Py_None, .is_gram = true};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|$OOOOOO:gram", names, &name, &a.A, &a.C,
                                     &a.alpha, &a.beta, &a.out, &a.device, &a.stream)) {
        return NULL;
    }
    a.B = a.A;
    return multiply(module, name, &a, catalog_find);
}

PyDoc_STRVAR(
    run_measured_doc,
    "The same as run, and also accepts 'cublas-tf32', the reference in reduced precision, and\n"
    "'mma_step' (csrc/gemm/mma_step.cu). The error bound of run does not apply to these.");

static PyObject *run_measured(PyObject *module, PyObject *const *args, Py_ssize_t count,
                              PyObject *names)
{
    return call_run(module, args, count, names, catalog_find_measured);
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

/* Calls `limit` with the folders of processes and cgroups in the arguments. */
static PyObject *limit_of(PyObject *args, int64_t (*limit)(const char *proc, const char *cgroups))
{
    PyObject *proc = NULL, *cgroups = NULL, *result = NULL;
    if (PyArg_ParseTuple(args, "O&O&", PyUnicode_FSConverter, &proc, PyUnicode_FSConverter,
                         &cgroups)) {
        result = PyLong_FromLongLong(limit(PyBytes_AsString(proc), PyBytes_AsString(cgroups)));
    }
    Py_XDECREF(proc);
    Py_XDECREF(cgroups);
    return result;
}

static PyObject *quota_cores(PyObject *Py_UNUSED(module), PyObject *args)
{
    return limit_of(args, limits_quota_cores);
}

static PyObject *usable_bytes(PyObject *Py_UNUSED(module), PyObject *args)
{
    return limit_of(args, limits_usable_bytes);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL | METH_KEYWORDS, run_doc},
    {"_run_measured", (PyCFunction)(void (*)(void))run_measured, METH_FASTCALL | METH_KEYWORDS,
     run_measured_doc},
    {"gram", (PyCFunction)(void (*)(void))gram, METH_VARARGS | METH_KEYWORDS, gram_doc},
    {"run_many", (PyCFunction)(void (*)(void))run_many, METH_VARARGS | METH_KEYWORDS, run_many_doc},
    {"empty", result_empty, METH_O, empty_doc},
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_VARARGS | METH_KEYWORDS, prepare_doc},
    {"_memory", result_memory, METH_NOARGS, NULL},
    {"_set_memory_limit", result_set_limit, METH_O, NULL},
    {"_empty_memory", result_empty_memory, METH_NOARGS, NULL},
    {"_set_usable_cores", set_usable_cores, METH_VARARGS, NULL},
    {"_quota_cores", quota_cores, METH_VARARGS, NULL},
    {"_usable_bytes", usable_bytes, METH_VARARGS, NULL},
    {"_plan_constants", plan_constants_of, METH_VARARGS, plan_constants_doc},
    {"_keep_plan_constants", keep_plan_constants, METH_VARARGS, keep_plan_constants_doc},
    {"_plan_constants_of_sheet", plan_constants_by_sheet, METH_VARARGS,
     plan_constants_of_sheet_doc},
    {"_plan_estimate", plan_estimate_of, METH_VARARGS, plan_estimate_doc},
    {"_plan_prefers_mixed", plan_prefers_mixed_of, METH_VARARGS, plan_prefers_mixed_doc},
    {"_keep_proof", keep_proof, METH_VARARGS, keep_proof_doc},
    {"_read_kept_proofs", read_kept_proofs, METH_NOARGS, read_kept_proofs_doc},
    {"_cpu_tensor_cores", cpu_tensor_cores_of, METH_NOARGS, cpu_tensor_cores_doc},
    {"_set_cpu_tensor_cores", set_cpu_tensor_cores, METH_VARARGS, set_cpu_tensor_cores_doc},
    {"_variants", describe_variants, METH_NOARGS, NULL},
    {"_devices", describe_devices, METH_NOARGS, NULL},
    {"_cuda_problem", describe_cuda_problem, METH_NOARGS, NULL},
    {"_build_info", describe_build, METH_NOARGS, NULL},
    {"_open_cublas", open_cublas_at, METH_O, NULL},
    {"_measure", measure, METH_VARARGS, measure_doc},
    {"_measure_copies", measure_copies, METH_VARARGS, measure_copies_doc},
    {"_trace", trace, METH_VARARGS, trace_doc},
    {"_launched", launched, METH_VARARGS, launched_doc},
    {"_torch_open", torch_open, METH_NOARGS, NULL},
    {"_torch_register", torch_register, METH_NOARGS, NULL},
    {"_torch_precision", torch_precision, METH_VARARGS, NULL},
    {"_torch_start", torch_start, METH_VARARGS, NULL},
    {"_torch_stop", torch_stop, METH_NOARGS, NULL},
    {"_torch_kernel", torch_kernel, METH_VARARGS, NULL},
    {"_torch_stats", torch_stats, METH_O, NULL},
    {"_open_kernel", open_kernel, METH_VARARGS, open_kernel_doc},
    {"_add_gpu_code", add_gpu_code, METH_VARARGS, add_gpu_code_doc},
    {NULL, NULL, 0, NULL},
};

/* Adds a capsule with the address of a C function, for the JAX front end. */
static bool add_function(PyObject *module, const char *name, void *function, const char *in_capsule)
{
    PyObject *const capsule = PyCapsule_New(function, in_capsule, NULL);
    const int added = capsule ? PyModule_AddObjectRef(module, name, capsule) : -1;
    Py_XDECREF(capsule);
    return added == 0;
}

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
    if (!add_function(module, "_c_multiply_batched", (void *)sgemm_kernels_multiply_batched,
                      "sgemm_kernels.multiply_batched") ||
        !add_function(module, "_c_multiply_typed", (void *)sgemm_kernels_multiply_typed,
                      "sgemm_kernels.multiply_typed")) {
        return -1;
    }
    preloaded_offer_engine();
    for (int index = 0; index < RUN_KEYWORDS; ++index) {
        state->keywords[index] = PyUnicode_InternFromString(keyword_names[index]);
        if (!state->keywords[index]) {
            return -1;
        }
    }
    state->DeviceArray = device_array_make_type(module);
    state->PreparedMatrix = prepared_make_type(module);
    return state->DeviceArray && state->PreparedMatrix &&
                   PyModule_AddType(module, (PyTypeObject *)state->DeviceArray) == 0 &&
                   PyModule_AddType(module, (PyTypeObject *)state->PreparedMatrix) == 0
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
    Py_VISIT(state->PreparedMatrix);
    for (int index = 0; index < RUN_KEYWORDS; ++index) {
        Py_VISIT(state->keywords[index]);
    }
    for (int index = 0; index < KNOWN_TYPES; ++index) {
        Py_VISIT(state->known_types[index].type);
    }
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
    Py_CLEAR(state->PreparedMatrix);
    for (int index = 0; index < RUN_KEYWORDS; ++index) {
        Py_CLEAR(state->keywords[index]);
    }
    for (int index = 0; index < KNOWN_TYPES; ++index) {
        Py_CLEAR(state->known_types[index].type);
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sgemm_kernels._core",
    .m_doc = "The C extension of sgemm_kernels.",
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
