#include "running_many.h"

#include <fenv.h>

#include "../../runtime/catalog.h"
#include "../../runtime/many.h"
#include "attributes.h"
#include "choosing.h"
#include "custom.h"
#include "device_array.h"
#include "interop.h"
#include "operand.h"
#include "prepared.h"
#include "raising.h"
#include "running.h"
#include "state.h"
#include "tensors.h"

/* The operands of all products, in the order of batch.h. */
typedef struct {
    Py_ssize_t count;
    PyObject *lists[OPERANDS];  /* new tuples of `count`; NULL: the single array */
    PyObject *single[OPERANDS]; /* borrowed: an array for all products, or None */
} Operands;

/* The arguments of product n. */
static RunArguments arguments_of(const RunArguments *all, const Operands *operands, Py_ssize_t n)
{
    PyObject *each[OPERANDS];
    for (int operand = 0; operand < OPERANDS; ++operand) {
        PyObject *const list = operands->lists[operand];
        each[operand] = list ? PyTuple_GetItem(list, n) : operands->single[operand];
    }
    RunArguments one = *all;
    one.A = each[OF_A];
    one.B = each[OF_B];
    one.C = each[OF_C];
    one.out = each[OF_OUT];
    return one;
}

/* Puts the product's number before the message of a TypeError or ValueError. Returns false. */
static bool fail_in(Py_ssize_t n)
{
    if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        PyErr_Format(PyErr_GivenExceptionMatches(type, PyExc_TypeError) ? PyExc_TypeError
                                                                        : PyExc_ValueError,
                     "product %zd: %S", n, value);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    return false;
}

/* ------------------------------------------------------------------ the lists */

static const char *const list_names[OPERANDS] = {"As", "Bs", "Cs", "out"};

static bool refuse_single(PyObject *argument, int operand)
{
    PyObject *const type = PyType_GetName(Py_TYPE(argument));
    if (type) {
        PyErr_Format(PyExc_TypeError, "%s must be a list with an array for each product, not %U",
                     list_names[operand], type);
        Py_DECREF(type);
    }
    return false;
}

/* Takes the argument for an operand. A list or a tuple has one array for each product. */
static bool take_list(PyObject *argument, int operand, Operands *operands)
{
    operands->single[operand] = argument;
    if (!PyList_Check(argument) && !PyTuple_Check(argument)) {
        return operand < OF_C || argument == Py_None || refuse_single(argument, operand);
    }
    PyObject *const list = PySequence_Tuple(argument);
    operands->lists[operand] = list;
    for (Py_ssize_t n = 0; list && n < PyTuple_Size(list); ++n) {
        if (PyTuple_GetItem(list, n) == Py_None) {
            PyErr_Format(PyExc_TypeError, "%s[%zd] is None: pass an array for each product",
                         list_names[operand], n);
            return false;
        }
    }
    return list != NULL;
}

/* Sets the number of products. */
static bool lists_fit(Operands *operands)
{
    const int first = operands->lists[OF_A] ? OF_A : OF_B;
    if (!operands->lists[first]) {
        PyErr_SetString(
            PyExc_TypeError,
            "As and Bs are both single arrays: pass a list of matrices as As, as Bs, or "
            "as both, such as list(A) for a batch A; or call run()");
        return false;
    }
    operands->count = PyTuple_Size(operands->lists[first]);
    for (int operand = 0; operand < OPERANDS; ++operand) {
        PyObject *const list = operands->lists[operand];
        if (list && PyTuple_Size(list) != operands->count) {
            PyErr_Format(
                PyExc_ValueError, "%s has %zd arrays but %s has %zd: pass one for each product",
                list_names[first], operands->count, list_names[operand], PyTuple_Size(list));
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------ each product */

/* Checks what run() would accept, but run_many() does not. */
static bool is_product(const Batch *batch)
{
    if (batch->axes > 0 || batch->A_is_vector || batch->B_is_vector) {
        PyErr_SetString(PyExc_ValueError,
                        "A and B must be matrices, with 2 dimensions: pass list(A) for a batch, or "
                        "call run()");
        return false;
    }
    return true;
}

static bool refuse_prepared(PyObject *module, const RunArguments *one)
{
    if ((PyObject *)Py_TYPE(one->B) == state_of(module)->PreparedMatrix) {
        PyErr_SetString(PyExc_TypeError, "B is a prepared matrix, which run_many() does not take: "
                                         "pass the matrix itself, or call run()");
        return false;
    }
    return prepared_is_only_B(module, one);
}

/* Whether the results can be written; the last check before that. */
static bool outs_fit(PyObject *module, const Operands *operands, const Product *products)
{
    PyObject *const outs = operands->lists[OF_OUT];
    const Status status = outs ? many_check_outs(products, operands->count) : status_ok();
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
    }
    bool done = status.code == STATUS_OK;
    for (Py_ssize_t n = 0; outs && n < operands->count && done; ++n) {
        done = tensor_count_write(PyTuple_GetItem(outs, n));
    }
    return done;
}

/* ------------------------------------------------------------------ in host memory */

/* Checks all operands, and chooses the devices. Returns their number. 0: an exception is set. */
static int take_on_host(PyObject *module, const RunArguments *all, const Operands *operands,
                        const Product *model, Product *products, int devices[MOST_GPUS])
{
    for (Py_ssize_t n = 0; n < operands->count; ++n) {
        const RunArguments one = arguments_of(all, operands, n);
        Batch batch;
        products[n] = *model;
        if (!refuse_prepared(module, &one) ||
            !run_take_operands(module, &one, &products[n], &batch) || !is_product(&batch)) {
            fail_in(n);
            return 0;
        }
    }
    DeviceKind kind;
    const int count = run_has_no_stream(all)
                          ? choose_devices(module, all->variant, all->device, &kind, devices)
                          : 0;
    for (Py_ssize_t n = 0; n < operands->count && count > 0; ++n) {
        products[n].kind = kind;
        products[n].device = devices[0];
    }
    return count;
}

static PyObject *take_outs(PyObject *module, const RunArguments *all, const Operands *operands,
                           Product *products)
{
    PyObject *const results = PyList_New(operands->count);
    for (Py_ssize_t n = 0; n < operands->count && results; ++n) {
        const RunArguments one = arguments_of(all, operands, n);
        Batch batch = {.axes = 0};
        PyObject *const result = run_take_out(module, &one, &products[n], &batch);
        if (!result || PyList_SetItem(results, n, result) != 0) {
            raise_out_of_memory(module);
            fail_in(n);
            Py_DECREF(results);
            return NULL;
        }
    }
    return results;
}

static PyObject *run_on_host(PyObject *module, const RunArguments *all, const Operands *operands,
                             const Product *model)
{
    const Py_ssize_t count = operands->count;
    Product *const products = PyMem_Calloc((size_t)count, sizeof *products);
    int devices[MOST_GPUS];
    if (!products) {
        return PyErr_NoMemory();
    }
    const int device_count = take_on_host(module, all, operands, model, products, devices);
    PyObject *results = device_count > 0 ? take_outs(module, all, operands, products) : NULL;
    if (results && !outs_fit(module, operands, products)) {
        Py_CLEAR(results);
    }
    if (results) {
        SignalWatch watch = {PyEval_SaveThread(), 0};
        for (Py_ssize_t n = 0; n < count; ++n) {
            products[n].interrupt = (Interrupt){signal_raised, &watch};
        }
        const Status status = many_run(products, count, devices, device_count);
        PyEval_RestoreThread(watch.thread);
        if (status.code != STATUS_OK) {
            Py_CLEAR(results);
            raise_status(module, &status);
        }
    }
    PyMem_Free(products);
    return results;
}

/* ------------------------------------------------------------------ on a GPU */

/* What run_many_on_gpu needs for each product. */
typedef struct {
    Imported (*imported)[OPERANDS];
    Product *products;
    Product *queued;        /* products to compute, and empty ones whose result is allocated */
    Py_ssize_t *numbers;    /* of these */
    DeviceBuffer **buffers; /* their new results */
    BufferUse *used;
} OnGpu;

static void free_on_gpu(OnGpu *on_gpu)
{
    PyMem_Free(on_gpu->imported);
    PyMem_Free(on_gpu->products);
    PyMem_Free(on_gpu->queued);
    PyMem_Free(on_gpu->numbers);
    PyMem_Free(on_gpu->buffers);
    PyMem_Free(on_gpu->used);
}

static bool allocate_on_gpu(Py_ssize_t count, OnGpu *on_gpu)
{
    const size_t size = (size_t)count;
    *on_gpu = (OnGpu){PyMem_Calloc(size, sizeof *on_gpu->imported),
                      PyMem_Calloc(size, sizeof *on_gpu->products),
                      PyMem_Calloc(size, sizeof *on_gpu->queued),
                      PyMem_Calloc(size, sizeof *on_gpu->numbers),
                      PyMem_Calloc(size, sizeof *on_gpu->buffers),
                      PyMem_Calloc(size * MOST_USED, sizeof *on_gpu->used)};
    if (on_gpu->imported && on_gpu->products && on_gpu->queued && on_gpu->numbers &&
        on_gpu->buffers && on_gpu->used) {
        return true;
    }
    PyErr_NoMemory();
    free_on_gpu(on_gpu);
    return false;
}

/* Whether the GPU of this product is known. Empty arrays may have none. */
static bool is_located(const Imported operands[OPERANDS])
{
    bool located = false;
    for (int operand = 0; operand < OPERANDS; ++operand) {
        located =
            located || (operands[operand].argument != Py_None && operands[operand].device >= 0);
    }
    return located;
}

/* The GPU that holds the operands of all products; -1 with an exception set if there is none. */
static int locate_all(PyObject *module, const RunArguments *all, const Operands *operands,
                      OnGpu *on_gpu)
{
    int home = -1;
    for (Py_ssize_t n = 0; n < operands->count; ++n) {
        const RunArguments one = arguments_of(all, operands, n);
        Imported *const each = on_gpu->imported[n];
        each[OF_A] = (Imported){.name = "A", .argument = one.A};
        each[OF_B] = (Imported){.name = "B", .argument = one.B};
        each[OF_C] = (Imported){.name = "C", .argument = one.C};
        each[OF_OUT] = (Imported){.name = "out", .argument = one.out};
        const int may = refuse_prepared(module, &one) ? run_may_be_on_gpu(module, &one) : -1;
        if (may == 0) {
            PyErr_SetString(PyExc_TypeError,
                            "its arrays are in host memory, but those of another product are on a "
                            "GPU, and run_many() does not move arrays: pass all on the GPU, or all "
                            "in host memory");
        }
        const int found = may > 0 ? run_locate(module, each) : -1;
        if (found < 0) {
            fail_in(n);
            return -1;
        }
        if (home >= 0 && found != home && is_located(each)) {
            PyErr_Format(PyExc_ValueError,
                         "its arrays are on " GPU_KIND
                         ":%d, but those of another product are on " GPU_KIND
                         ":%d: pass arrays on one GPU",
                         found, home);
            fail_in(n);
            return -1;
        }
        home = home < 0 && is_located(each) ? found : home;
    }
    return home < 0 ? 0 : home;
}

static bool import_all(PyObject *module, StreamScope *scope, const Operands *operands,
                       const Product *model, OnGpu *on_gpu)
{
    for (Py_ssize_t n = 0; n < operands->count; ++n) {
        Batch batch;
        on_gpu->products[n] = *model;
        if (!run_import(module, scope, on_gpu->imported[n], &on_gpu->products[n], &batch) ||
            !is_product(&batch)) {
            return fail_in(n);
        }
    }
    return outs_fit(module, operands, on_gpu->products);
}

/* The result of product n: `out`, or an array that A's library allocates. Otherwise NULL, without
 * an exception if the package allocates it. */
static PyObject *result_of_library(PyObject *module, StreamScope *scope, OnGpu *on_gpu,
                                   Py_ssize_t n)
{
    const Imported *const each = on_gpu->imported[n];
    PyObject *const out = each[OF_OUT].argument;
    Batch none = {.axes = 0};
    return out != Py_None ? Py_NewRef(out)
           : run_library_allocates(&each[OF_A], scope)
               ? run_new_result(module, scope, &each[OF_A], &on_gpu->products[n], &none)
               : NULL;
}

/* Fills the list with the results that exist before the products are computed. Returns how many
 * products are queued, or -1 with an exception set. */
static Py_ssize_t queue_all(PyObject *module, StreamScope *scope, OnGpu *on_gpu, PyObject *results)
{
    Py_ssize_t queued = 0;
    for (Py_ssize_t n = 0; n < PyList_Size(results); ++n) {
        PyObject *const result = result_of_library(module, scope, on_gpu, n);
        const Product *const product = &on_gpu->products[n];
        if (PyErr_Occurred() || (result && PyList_SetItem(results, n, result) != 0)) {
            return -1;
        }
        if (!result || (product->A.rows > 0 && product->B.cols > 0)) {
            on_gpu->numbers[queued] = n;
            on_gpu->queued[queued++] = *product;
        }
    }
    return queued;
}

/* Stores the results that the package has allocated in the list. */
static bool add_results(PyObject *module, OnGpu *on_gpu, Py_ssize_t queued, PyObject *results)
{
    PyTypeObject *const type = (PyTypeObject *)state_of(module)->DeviceArray;
    bool done = true;
    for (Py_ssize_t i = 0; i < queued; ++i) {
        DeviceBuffer *const buffer = on_gpu->buffers[i];
        const Product *const product = &on_gpu->queued[i];
        const int64_t shape[] = {product->A.rows, product->B.cols};
        if (buffer && !done) {
            device_kinds[DEVICE_CUDA]->arrays->drop(buffer);
        } else if (buffer) {
            PyObject *const result = device_array_new(type, buffer, 2, shape);
            done = result && PyList_SetItem(results, on_gpu->numbers[i], result) == 0;
        }
    }
    return done;
}

/* Imports the operands and computes all products. A new list of the results. */
static PyObject *multiply_all(PyObject *module, StreamScope *scope, const Operands *operands,
                              const Product *model, OnGpu *on_gpu, const int *devices, int gpus)
{
    PyObject *const results =
        import_all(module, scope, operands, model, on_gpu) ? PyList_New(operands->count) : NULL;
    const Py_ssize_t queued = results ? queue_all(module, scope, on_gpu, results) : -1;
    bool done = queued >= 0;
    if (done) {
        Status status;
        Py_BEGIN_ALLOW_THREADS;
        status = device_kinds[DEVICE_CUDA]->arrays->run_many(scope, on_gpu->queued, queued, devices,
                                                             gpus, on_gpu->buffers);
        Py_END_ALLOW_THREADS;
        done = status.code == STATUS_OK;
        if (!done) {
            raise_status(module, &status);
        }
    }
    if (!done || !add_results(module, on_gpu, queued, results)) {
        Py_XDECREF(results);
        return NULL;
    }
    return results;
}

/* The same in a new scope of the stream. */
static PyObject *run_in_stream(PyObject *module, const Operands *operands, const Product *model,
                               OnGpu *on_gpu, const int *devices, int gpus, void *stream)
{
    StreamScope scope;
    if (!run_enter(module, devices[0], stream, &scope)) {
        return NULL;
    }
    scope.used = on_gpu->used;
    PyObject *const results = multiply_all(module, &scope, operands, model, on_gpu, devices, gpus);
    device_kinds[DEVICE_CUDA]->arrays->leave(&scope);
    for (Py_ssize_t n = 0; n < operands->count; ++n) {
        for (int operand = 0; operand < OPERANDS; ++operand) {
            interop_release(&on_gpu->imported[n][operand]);
        }
    }
    return results;
}

static PyObject *run_on_gpu_all(PyObject *module, const RunArguments *all, const Operands *operands,
                                const Product *model)
{
    OnGpu on_gpu;
    void *stream;
    int devices[MOST_GPUS];
    if (!interop_stream(all->stream, &stream) || !allocate_on_gpu(operands->count, &on_gpu)) {
        return NULL;
    }
    const int home = locate_all(module, all, operands, &on_gpu);
    int gpus = home >= 0 ? run_choose_gpus(module, all->variant, all->device, home, devices) : 0;
    if (gpus > 1 && stream) {
        PyErr_SetString(PyExc_ValueError, "stream belongs to one GPU but device='" GPU_KIND
                                          ":all' uses all GPUs: omit one of them");
        gpus = 0;
    }
    if (gpus == 1 &&
        !run_share_stream(on_gpu.imported[0], operands->count * OPERANDS, false, &stream)) {
        gpus = 0;
    }
    PyObject *const results =
        gpus > 0 ? run_in_stream(module, operands, model, &on_gpu, devices, gpus, stream) : NULL;
    free_on_gpu(&on_gpu);
    return results;
}

/* ------------------------------------------------------------------ the call */

/* Whether any product has an array that may be on a GPU: 1 or 0, or -1 with an exception set. */
static int may_be_on_gpu(PyObject *module, const RunArguments *all, const Operands *operands)
{
    int may = 0;
    for (Py_ssize_t n = 0; n < operands->count && may == 0; ++n) {
        const RunArguments one = arguments_of(all, operands, n);
        may = run_may_be_on_gpu(module, &one);
    }
    return may;
}

static PyObject *multiply(PyObject *module, RunArguments *all, const Operands *operands)
{
    Product model = {.variant = all->variant, .count = 1};
    all->C = operands->lists[OF_C] ? operands->lists[OF_C] : Py_None;
    if (!run_take_factors(all, &model) || !beta_fits_c(all, &model)) {
        return NULL;
    }
    if (operands->count == 0) {
        return PyList_New(0);
    }
    const int on_gpu = may_be_on_gpu(module, all, operands);
    return on_gpu < 0   ? NULL
           : on_gpu > 0 ? run_on_gpu_all(module, all, operands, &model)
                        : run_on_host(module, all, operands, &model);
}

/* A custom kernel multiplies one pair after the other. */
static PyObject *run_own(PyObject *kernel, const RunArguments *all, const Operands *operands)
{
    PyObject *const results = PyList_New(0);
    bool done = results != NULL;
    for (Py_ssize_t n = 0; n < operands->count && done; ++n) {
        const RunArguments one = arguments_of(all, operands, n);
        PyObject *const given[] = {one.C, all->alpha, all->beta, one.out, all->device, all->stream};
        static const char *const names[] = {"C", "alpha", "beta", "out", "device", "stream"};
        PyObject *const args = PyTuple_Pack(3, kernel, one.A, one.B);
        PyObject *const keywords = PyDict_New();
        done = args && keywords;
        for (size_t i = 0; i < sizeof given / sizeof *given && done; ++i) {
            done = !given[i] || given[i] == Py_None ||
                   PyDict_SetItemString(keywords, names[i], given[i]) == 0;
        }
        PyObject *const result = done ? custom_kernel_run(kernel, args, keywords) : NULL;
        done = result ? PyList_Append(results, result) == 0 : fail_in(n);
        Py_XDECREF(result);
        Py_XDECREF(keywords);
        Py_XDECREF(args);
    }
    if (!done) {
        Py_XDECREF(results);
        return NULL;
    }
    return results;
}

/* The results for any variant. */
static PyObject *run_any(PyObject *module, PyObject *name, RunArguments *all,
                         const Operands *operands)
{
    if (!PyUnicode_Check(name) && !PyCapsule_CheckExact(name)) {
        const int is_kernel = has_attribute(name, "__sgemm_run__");
        if (is_kernel) {
            return is_kernel > 0 ? run_own(name, all, operands) : NULL;
        }
    }
    all->variant = choose_variant(name, catalog_find);
    if (!all->variant) {
        return NULL;
    }
    /* As for run(). */
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    PyObject *const results = multiply(module, all, operands);
    fesetenv(&environment);
    return results;
}

PyObject *run_many(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"variant", "As",  "Bs",     "Cs",     "alpha",
                            "beta",    "out", "device", "stream", NULL};
    PyObject *name, *As, *Bs, *Cs = Py_None, *out = Py_None;
    RunArguments all = {.device = Py_None, .stream = Py_None};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO|O$OOOOO:run_many", names, &name, &As, &Bs,
                                     &Cs, &all.alpha, &all.beta, &out, &all.device, &all.stream)) {
        return NULL;
    }
    Operands operands = {.count = 0};
    PyObject *const given[OPERANDS] = {[OF_A] = As, [OF_B] = Bs, [OF_C] = Cs, [OF_OUT] = out};
    bool done = true;
    for (int operand = 0; operand < OPERANDS && done; ++operand) {
        done = take_list(given[operand], operand, &operands);
    }
    PyObject *const results =
        done && lists_fit(&operands) ? run_any(module, name, &all, &operands) : NULL;
    for (int operand = 0; operand < OPERANDS; ++operand) {
        Py_XDECREF(operands.lists[operand]);
    }
    return results;
}

const char run_many_doc[] = PyDoc_STR(
    "run_many(variant, As, Bs, Cs=None, *, alpha=1.0, beta=0.0, out=None, device=None, "
    "stream=None)\n"
    "--\n"
    "\n"
    "Compute alpha * A @ B + beta * C for each A of As and B of Bs, of any shapes.\n"
    "\n"
    "On a GPU, `simt` and `auto` compute many products in one launch, as for a mixture of "
    "experts.\n"
    "They launch large products one by one where that is estimated to be faster, and `auto` uses\n"
    "tensor cores for these. Other variants launch each product. The whole list takes one call of\n"
    "the package.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "variant : str or Kernel\n"
    "    As for run(). A custom kernel multiplies one pair after the other.\n"
    "As : list of arrays of float32, float16 or bfloat16, shapes (M, K)\n"
    "Bs : list of arrays of float32, float16 or bfloat16, shapes (K, N)\n"
    "    M, N and K may differ from product to product. One of As and Bs may be a single matrix\n"
    "    instead of a list: all products then share it. Each pair obeys the rules of run().\n"
    "Cs : list of arrays of float32, shapes (M, N), optional\n"
    "    Required if beta is not 0.\n"
    "alpha, beta : float\n"
    "    The same for all products.\n"
    "out : list of arrays of float32, shapes (M, N), optional\n"
    "    Receive the results. They may overlap arrays of As, Bs and Cs: the results are as if\n"
    "    these had been copied first. They may not overlap each other.\n"
    "device, stream : optional\n"
    "    As for run().\n"
    "\n"
    "Returns\n"
    "-------\n"
    "list of arrays of float32, shapes (M, N)\n"
    "    The arrays of `out`, or new arrays of the types that run() returns. Their elements are\n"
    "    within the error bound of run(). A rung returns the same bits as in run(). The bits of\n"
    "    `simt` and `auto` depend on the shapes, layouts and alignment of the whole list, and are\n"
    "    the same in each call.\n"
    "\n"
    "Raises\n"
    "------\n"
    "TypeError\n"
    "    As for run(), with the product's number: 'product 3: B has dtype float64, ...'. Also for "
    "a\n"
    "    matrix of prepare().\n"
    "ValueError\n"
    "    As for run(), with the product's number. The lists have different lengths, or two arrays\n"
    "    of `out` may share memory. All of this is found before anything is computed, except for\n"
    "    custom kernels.\n"
    "UnsupportedVariantError, OutOfMemoryError, DeviceError, KeyboardInterrupt\n"
    "    As for run(). `out` then has undefined content.");
