/* run() for arrays on a GPU. */
#include "../../runtime/multi_gpu.h"
#include "choosing.h"
#include "device_array.h"
#include "interop.h"
#include "operand.h"
#include "raising.h"
#include "running.h"
#include "state.h"
#include "tensors.h"

int run_locate(PyObject *module, Imported operands[OPERANDS])
{
    const Imported *first = NULL, *host = NULL;
    for (int index = 0; index < OPERANDS; ++index) {
        Imported *const imported = &operands[index];
        if (imported->argument == Py_None && index >= OF_C) {
            continue;
        }
        const int importable = interop_may_import(module, imported->argument);
        if (importable <= 0) {
            if (importable < 0 || !interop_host_operand(module, imported->argument, imported->name,
                                                        &imported->view)) {
                return -1;
            }
            host = host ? host : imported;
            continue;
        }
        if (!interop_locate(imported, module)) {
            return -1;
        }
        if (!first || first->device < 0) {
            first = imported;
        } else if (imported->device >= 0 && imported->device != first->device) {
            PyErr_Format(PyExc_ValueError,
                         "%s is on " GPU_KIND ":%d and %s is on " GPU_KIND
                         ":%d: pass arrays on one GPU; with device='" GPU_KIND
                         ":all' the other GPUs help",
                         first->name, first->device, imported->name, imported->device);
            return -1;
        }
    }
    if (host) {
        interop_refuse_mixture(first, host);
        return -1;
    }
    return first->device < 0 ? 0 : first->device;
}

int run_choose_gpus(PyObject *module, const Variant *variant, PyObject *device, int home,
                    int devices[MOST_GPUS])
{
    char text[16];
    PyOS_snprintf(text, sizeof text, ":%d", home);
    if (!choose_gpu(module, text, devices)) {
        return 0;
    }
    DeviceKind kind = DEVICE_CUDA;
    if (device == Py_None ||
        (PyUnicode_Check(device) && PyUnicode_CompareWithASCIIString(device, GPU_KIND) == 0)) {
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
                     "the operands are on " GPU_KIND
                     ":%d but device is %R: pass device=None, or operands on that device",
                     home, device);
    }
    return 0;
}

bool run_enter(PyObject *module, int device, void *stream, StreamScope *scope)
{
    Status status;
    /* This may wait for the device, which may run a callback that needs the GIL. */
    Py_BEGIN_ALLOW_THREADS;
    status = device_kinds[DEVICE_CUDA]->arrays->enter(device, stream, scope);
    Py_END_ALLOW_THREADS;
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
    }
    return status.code == STATUS_OK;
}

bool run_import(PyObject *module, StreamScope *scope, Imported operands[OPERANDS], Product *product,
                Batch *batch)
{
    Imported *const A = &operands[OF_A], *const B = &operands[OF_B], *const C = &operands[OF_C],
                    *const out = &operands[OF_OUT];
    product->kind = DEVICE_CUDA;
    product->device = scope->device;
    if (!interop_import(A, scope, module) || !interop_import(B, scope, module) ||
        (B->transposed && !operand_transpose(&B->view)) ||
        !operands_fit(&A->view, &B->view, product, batch)) {
        return false;
    }
    if (C->argument != Py_None &&
        (!interop_import(C, scope, module) ||
         !operand_fits_result(&C->view, OF_C, interop_library(C->argument), product, batch))) {
        return false;
    }
    return out->argument == Py_None ||
           (interop_import(out, scope, module) &&
            operand_fits_result(&out->view, OF_OUT, interop_library(out->argument), product,
                                batch) &&
            operand_is_writable(out->read_only, &out->view, false));
}

bool run_share_stream(Imported *operands, int64_t count, bool B_is_prepared, void **stream)
{
    const DlExchange *const exchange = operands[OF_A].exchange;
    void *current = NULL;
    bool shared = exchange != NULL;
    for (int64_t index = OF_B; index < count; ++index) {
        shared =
            shared && (operands[index].argument == Py_None ||
                       operands[index].exchange == exchange || (index == OF_B && B_is_prepared));
    }
    if (shared && !interop_current_stream(&operands[OF_A], &current)) {
        return false;
    }
    *stream = *stream ? *stream : current;
    for (int64_t index = OF_A; shared && index < count; ++index) {
        operands[index].ordered = *stream == current;
    }
    return true;
}

PyObject *run_new_result(PyObject *module, StreamScope *scope, const Imported *A, Product *product,
                         Batch *batch)
{
    int64_t shape[VIEW_AXES];
    void *memory = NULL;
    const int axes = batch_shape(product, batch, shape);
    const Device *const cuda = device_kinds[DEVICE_CUDA];
    PyObject *made = NULL;
    for (int attempt = 0; attempt < 2 && !made; ++attempt) {
        if (attempt > 0) { /* the package's idle memory may be what the library lacks */
            PyErr_Clear();
            Py_BEGIN_ALLOW_THREADS;
            cuda->give_idle_back();
            Py_END_ALLOW_THREADS;
        }
        made = dlpack_exchange_new(A->exchange, DLPACK_GPU, A->device, axes, shape, &memory);
    }
    if (!made) {
        raise_out_of_memory(module);
        return NULL;
    }
    batch_add_contiguous(memory, product, batch);
    if (!A->ordered && !interop_await_library(A, scope, module)) {
        Py_CLEAR(made);
    }
    return made;
}

/* A library reuses memory in the order of its current stream, so a result in another stream of the
 * caller would not be safe there. In a stream of the package, the call waits. */
bool run_library_allocates(const Imported *A, const StreamScope *scope)
{
    return A->exchange && (A->ordered || scope->streams);
}

/* Imports the operands and computes their product. */
static PyObject *multiply_imported(PyObject *module, StreamScope *scope,
                                   Imported operands[OPERANDS], const RunArguments *arguments,
                                   Product *product, const int *devices, int count)
{
    const State *const state = state_of(module);
    const Imported *const A = &operands[OF_A];
    PyObject *const out = operands[OF_OUT].argument;
    PyObject *made = NULL; /* the result, if A's library allocates it */
    Batch batch;
    if (!run_import(module, scope, operands, product, &batch) || !beta_fits_c(arguments, product) ||
        !tensor_count_write(out)) {
        return NULL;
    }
    const bool is_empty = product->A.rows == 0 || product->B.cols == 0 || batch_count(&batch) == 0;
    if (out != Py_None && is_empty) {
        return Py_NewRef(out);
    }
    if (out == Py_None && run_library_allocates(A, scope)) {
        made = run_new_result(module, scope, A, product, &batch);
        if (!made || is_empty) {
            return made;
        }
    }
    const DeviceArrays *const arrays = device_kinds[DEVICE_CUDA]->arrays;
    DeviceBuffer *block = NULL;
    Status status = status_ok();
    Py_BEGIN_ALLOW_THREADS;
    if (arguments->pairs) {
        status = arrays->use_pairs(scope, arguments->pairs, &product->B);
    }
    if (status.code == STATUS_OK) {
        status = arrays->run(scope, product, &batch, devices, count, &block);
    }
    Py_END_ALLOW_THREADS;
    if (status.code != STATUS_OK) {
        Py_XDECREF(made);
        raise_status(module, &status);
        return NULL;
    }
    if (made || out != Py_None) {
        return made ? made : Py_NewRef(out);
    }
    int64_t shape[VIEW_AXES];
    const int axes = batch_shape(product, &batch, shape);
    return device_array_new((PyTypeObject *)state->DeviceArray, block, axes, shape);
}

PyObject *run_on_gpu(PyObject *module, const RunArguments *arguments, Product *product)
{
    Imported operands[OPERANDS] = {
        [OF_A] = {.name = "A", .argument = arguments->A},
        [OF_B] = {.name = "B", .argument = arguments->B, .transposed = arguments->is_gram},
        [OF_C] = {.name = "C", .argument = arguments->C},
        [OF_OUT] = {.name = "out", .argument = arguments->out}};
    void *stream;
    int devices[MOST_GPUS];
    const int home = interop_stream(arguments->stream, &stream) ? run_locate(module, operands) : -1;
    const int count =
        home >= 0 ? run_choose_gpus(module, product->variant, arguments->device, home, devices) : 0;
    if (count == 0) {
        return NULL;
    }
    if (stream && count > 1) {
        PyErr_SetString(PyExc_ValueError, "stream belongs to one GPU but device='" GPU_KIND
                                          ":all' uses all GPUs: omit one of them");
        return NULL;
    }
    if (count == 1 && !run_share_stream(operands, OPERANDS, arguments->is_prepared, &stream)) {
        return NULL;
    }
    StreamScope scope;
    if (!run_enter(module, devices[0], stream, &scope)) {
        return NULL;
    }
    PyObject *const result =
        multiply_imported(module, &scope, operands, arguments, product, devices, count);
    device_kinds[DEVICE_CUDA]->arrays->leave(&scope);
    for (int index = 0; index < OPERANDS; ++index) {
        interop_release(&operands[index]);
    }
    return result;
}
