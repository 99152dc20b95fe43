#define _GNU_SOURCE /* syscall */
#include "raising.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

/* Creates an exception, stores it in *place and adds it to the module. Steals `bases`, which may be
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

bool raising_add_exceptions(PyObject *module)
{
    State *const state = state_of(module);
    return add_exception(module, &state->Error, "Error",
                         "The base class of this package's exceptions.",
                         PyTuple_Pack(1, PyExc_Exception)) &&
           add_exception(module, &state->DeviceError, "DeviceError",
                         "A device is missing, cannot be used, or failed.",
                         PyTuple_Pack(2, state->Error, PyExc_RuntimeError)) &&
           add_exception(module, &state->OutOfMemoryError, "OutOfMemoryError",
                         "The host or a device is out of memory.",
                         PyTuple_Pack(2, state->DeviceError, PyExc_MemoryError)) &&
           add_exception(
               module, &state->UnsupportedVariantError, "UnsupportedVariantError",
               "The variant cannot run on that device, or a library that it needs is missing.",
               PyTuple_Pack(1, state->Error));
}

static PyObject *exception_for(const State *state, StatusCode code)
{
    switch (code) {
    case STATUS_OUT_OF_MEMORY:
        return state->OutOfMemoryError;
    case STATUS_UNSUPPORTED:
        return state->UnsupportedVariantError;
    case STATUS_INVALID:
        return PyExc_ValueError;
    default:
        return state->DeviceError;
    }
}

void raise_status(PyObject *module, const Status *status)
{
    if (status->code == STATUS_INTERRUPTED) {
        return; /* the signal handler has already set the exception */
    }
    /* A message may contain a path in any encoding, and may be truncated inside a character. */
    PyObject *const message =
        PyUnicode_DecodeUTF8(status->message, (Py_ssize_t)strlen(status->message), "replace");
    if (message) {
        PyErr_SetObject(exception_for(state_of(module), status->code), message);
        Py_DECREF(message);
    }
}

void raise_out_of_memory(PyObject *module)
{
    PyObject *type, *value, *traceback;
    if (!PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyErr_Format(state_of(module)->OutOfMemoryError, "out of memory for the result: %S", value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

bool signal_raised(void *context)
{
    static const int64_t interval_ns = 50000000;
    SignalWatch *const watch = context;
    const int64_t now = now_ns();
    if (watch->asked_ns == 0) {
        watch->asked_ns = now; /* the interval starts with the first call */
    }
    /* Signal handlers run only in the main thread. Taking the GIL in another thread would be
     * useless and dangerous: while the interpreter exits, that ends the thread (or blocks it
     * forever, from Python 3.14), but workers and threads for other GPUs still use its stack. Other
     * Python threads therefore take the GIL only after the call. */
    if (now - watch->asked_ns < interval_ns || syscall(SYS_gettid) != getpid()) {
        return false;
    }
    PyEval_RestoreThread(watch->thread);
    const bool raised = PyErr_CheckSignals() != 0;
    watch->thread = PyEval_SaveThread();
    watch->asked_ns = now_ns(); /* again, because waiting for the GIL takes time */
    return raised;
}
