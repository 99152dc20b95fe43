#include "tracing.h"

#include <stdlib.h>

#include "../../base/launched.h"
#include "../../emulator/access_trace/access_trace.h"
#include "../../runtime/catalog.h"
#include "choosing.h"
#include "custom.h"
#include "lists.h"
#include "raising.h"

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
        "{s:s, s:i, s:i, s:s, s:s, s:s, s:N, s:i, s:L, s:L, s:N, s:N, s:N, s:L, s:L, s:N}", "file",
        access->file, "line", access->line, "launch", access->launch, "space",
        access->shared ? "shared" : "global", "operand", access->operand, "kind",
        access->store ? "store" : "load", "copied", PyBool_FromLong(access->copied),
        "bytes_per_thread", access->bytes, "requests", (long long)access->requests, "lanes",
        (long long)access->lanes, "sectors", number_if(!access->shared, access->transactions),
        "wavefronts", number_if(access->shared, access->transactions), "lines",
        number_if(!access->shared, access->lines), "least", (long long)access->least, "row_bytes",
        (long long)access->row_bytes, "first_request", first_request(access));
}

const char trace_doc[] = PyDoc_STR(
    "_trace(variant, batch, M, N, K)\n"
    "-> (rows, cols, tensor_multiply_adds, owners, tuple of dict)\n"
    "\n"
    "Counts the memory accesses of the first block of each product of (M, K) and (K, N), on the\n"
    "CPU device. The sizes are at least 1. `owners` is a row-major array of int16, as bytes: the\n"
    "thread that stored each result of the first product; -1: none.");

PyObject *trace(PyObject *module, PyObject *args)
{
    PyObject *name;
    long long batch, M, N, K;
    if (!PyArg_ParseTuple(args, "OLLLL", &name, &batch, &M, &N, &K)) {
        return NULL;
    }
    const Variant *const variant = choose_variant(name, catalog_find);
    if (!variant || !can_run(module, variant, DEVICE_CPU, 0)) {
        return NULL;
    }
    const OpenKernel *const own = PyCapsule_CheckExact(name) ? custom_kernel_of(name) : NULL;
    if (own && !own->code->count) {
        PyErr_SetString(PyExc_ValueError, "this library is not a traced build");
        return NULL;
    }
    Counts *const counts = calloc(1, sizeof *counts);
    if (!counts) {
        return PyErr_NoMemory();
    }
    SignalWatch watch = {PyEval_SaveThread(), 0};
    const Interrupt interrupt = {signal_raised, &watch};
    const Status status =
        own ? own->code->count(own->code->variant, batch, M, N, K, &interrupt, counts)
            : trace_block(variant, batch, M, N, K, &interrupt, counts);
    PyEval_RestoreThread(watch.thread);
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
        const Py_ssize_t results = (Py_ssize_t)(counts->rows * counts->cols);
        result = accesses
                     ? Py_BuildValue("LLLy#N", (long long)counts->rows, (long long)counts->cols,
                                     (long long)counts->tensor_multiply_adds,
                                     (const char *)counts->owners,
                                     results * (Py_ssize_t)sizeof *counts->owners, accesses)
                     : NULL;
    }
    free(counts->owners);
    free(counts);
    return result;
}

const char launched_doc[] = PyDoc_STR(
    "_launched(record) -> frozenset of str\n"
    "\n"
    "The names of the kernels that were launched since the last call, and whether to record more.");

PyObject *launched(PyObject *Py_UNUSED(module), PyObject *args)
{
    int record;
    if (!PyArg_ParseTuple(args, "p", &record)) {
        return NULL;
    }
    const char *names[LAUNCHED_MOST];
    const int count = launched_take(record, names);
    PyObject *const list = PyList_New(0);
    for (int i = 0; list && i < count; ++i) {
        if (!append(list, PyUnicode_FromString(names[i]))) {
            break;
        }
    }
    PyObject *const tuple = list ? as_tuple(list) : NULL;
    PyObject *const set = tuple ? PyFrozenSet_New(tuple) : NULL;
    Py_XDECREF(tuple);
    return set;
}
