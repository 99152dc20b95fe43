/* This package's exceptions, and the conversion of a Status to an exception. */
#ifndef SGEMM_PYTHON_RAISING_H
#define SGEMM_PYTHON_RAISING_H

#include <stdbool.h>
#include <stdint.h>

#include "../../base/status.h"
#include "python.h"

/* Creates the exceptions in the module and its state. False with an exception set on failure. */
bool raising_add_exceptions(PyObject *module);

/* Sets the exception for a failed status. `module` is this package's extension. */
void raise_status(PyObject *module, const Status *status);

/* Replaces a MemoryError that is set by this package's OutOfMemoryError; keeps any other
 * exception. */
void raise_out_of_memory(PyObject *module);

/* The context of signal_raised. Initialize it with {PyEval_SaveThread(), 0}. */
typedef struct {
    PyThreadState *thread; /* for PyEval_RestoreThread */
    int64_t asked_ns;      /* time of the last check for signals, monotonic clock; 0: none yet */
} SignalWatch;

/* A poll function for Interrupt, with a SignalWatch as context: true if a signal handler has raised
 * an exception. Cheap: it takes the GIL and runs handlers at most 20 times a second. */
bool signal_raised(void *context);

#endif
