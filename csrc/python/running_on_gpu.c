/* run() of arrays that are on a GPU already. */
#include "../core/multi_gpu.h"
#include "choosing.h"
#include "device_array.h"
#include "interop.h"
#include "operand.h"
#include "raising.h"
#include "running.h"
#include "state.h"

enum { OPERAND_A, OPERAND_B, OPERAND_C, OPERAND_OUT, OPERANDS };

/* Finds out where the operands are: one GPU, of which the number is returned; -1 with an exception
 * set if not. */
static int locate_operands(PyObject *module, Lent operands[OPERANDS])
{
    const State *const state = state_of(module);
    const Lent *first = NULL;
    const char *host = NULL;
    for (int index = 0; index < OPERANDS; ++index) {
        Lent *const lent = &operands[index];
        if (lent->argument == Py_None && index >= OPERAND_C) {
            continue;
        }
        const int lends = interop_may_lend(lent->argument);
        if (lends <= 0) {
            if (lends < 0 || !operand_array(lent->argument, lent->name, &lent->array)) {
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
                         "%s is on " GPU_KIND ":%d and %s is on " GPU_KIND
                         ":%d: pass arrays that are all on one "
                         "GPU; device='" GPU_KIND ":all' lets other GPUs help it",
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
                     ":%d and device is %R: pass device=None, or operands "
                     "that are there",
                     home, device);
    }
    return 0;
}

/* Borrows the operands and checks them against each other, as run_product does those of NumPy. */
static bool borrow_operands(PyObject *module, StreamScope *scope, Lent operands[OPERANDS],
                            const RunArguments *arguments, Product *product)
{
    Lent *const C = &operands[OPERAND_C], *const out = &operands[OPERAND_OUT];
    const Strided *const A = &operands[OPERAND_A].array, *const B = &operands[OPERAND_B].array;
    if (!interop_borrow(&operands[OPERAND_A], scope, module) ||
        !interop_borrow(&operands[OPERAND_B], scope, module) || !operand_shapes_agree(A, B)) {
        return false;
    }
    C->rows = A->rows;
    C->cols = B->cols;
    if ((C->argument != Py_None && !interop_borrow(C, scope, module)) ||
        (out->argument != Py_None && !interop_borrow(out, scope, module))) {
        return false;
    }
    product->A = *A;
    product->B = *B;
    product->C = C->array;
    product->out = out->array;
    if ((C->argument != Py_None && !interop_has_result_shape(C, A, B)) ||
        !beta_fits_c(arguments, product)) {
        return false;
    }
    return out->argument == Py_None || (interop_has_result_shape(out, A, B) &&
                                        operand_is_writable(out->read_only, &product->out, false));
}

/* The product of operands that the scope's GPU has. */
static PyObject *multiply_lent(PyObject *module, StreamScope *scope, Lent operands[OPERANDS],
                               const RunArguments *arguments, Product *product, const int *devices,
                               int count)
{
    const State *const state = state_of(module);
    PyObject *const out = operands[OPERAND_OUT].argument;
    if (!borrow_operands(module, scope, operands, arguments, product)) {
        return NULL;
    }
    if (out != Py_None && (product->out.rows == 0 || product->out.cols == 0)) {
        return Py_NewRef(out);
    }
    DeviceBuffer *block = NULL;
    Status status;
    Py_BEGIN_ALLOW_THREADS;
    status = device_kinds[DEVICE_CUDA]->arrays->run(scope, product, devices, count, &block);
    Py_END_ALLOW_THREADS;
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    return out != Py_None ? Py_NewRef(out)
                          : device_array_new((PyTypeObject *)state->DeviceArray, block);
}

PyObject *run_on_gpu(PyObject *module, const RunArguments *arguments, Product *product)
{
    Lent operands[OPERANDS] = {[OPERAND_A] = {.name = "A", .argument = arguments->A},
                               [OPERAND_B] = {.name = "B", .argument = arguments->B},
                               [OPERAND_C] = {.name = "C", .argument = arguments->C},
                               [OPERAND_OUT] = {.name = "out", .argument = arguments->out}};
    void *stream;
    int devices[MOST_GPUS];
    const int home =
        interop_stream(arguments->stream, &stream) ? locate_operands(module, operands) : -1;
    const int count =
        home >= 0 ? devices_for(module, product->variant, arguments->device, home, devices) : 0;
    if (count == 0) {
        return NULL;
    }
    if (stream && count > 1) {
        PyErr_SetString(PyExc_ValueError, "stream is one GPU's and device='" GPU_KIND
                                          ":all' takes them all: pass one of them");
        return NULL;
    }
    const DeviceArrays *const arrays = device_kinds[DEVICE_CUDA]->arrays;
    StreamScope scope;
    Status status;
    /* It may wait for the device, and what that waits for may be a callback that needs the GIL. */
    Py_BEGIN_ALLOW_THREADS;
    status = arrays->enter(devices[0], stream, &scope);
    Py_END_ALLOW_THREADS;
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    PyObject *const result =
        multiply_lent(module, &scope, operands, arguments, product, devices, count);
    arrays->leave(&scope);
    for (int index = 0; index < OPERANDS; ++index) {
        interop_return(&operands[index]);
    }
    return result;
}
