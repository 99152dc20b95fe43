/* This package's own exceptions, and failures as exceptions. */
#ifndef SGEMM_PYTHON_RAISING_H
#define SGEMM_PYTHON_RAISING_H

#include <stdbool.h>
#include <stdint.h>

#include "../core/status.h"
#include "python.h"

/* Makes the exceptions, in the module and its state; false with an exception set on failure. */
bool raising_add_exceptions(PyObject *module);

/* Sets the exception that stands for a failure; `module` is this package's extension. */
void raise_status(PyObject *module, const Status *status);

/* Makes the MemoryError that is set this package's OutOfMemoryError; leaves any other exception. */
void raise_out_of_memory(PyObject *module);

/* What signal_raised goes by: begins as {PyEval_SaveThread()}. */
typedef struct {
    PyThreadState *thread; /* as PyEval_RestoreThread takes it */
    int64_t asked_ns;      /* when Python was last asked, by the monotonic clock; 0: not yet */
} SignalWatch;

/* An Interrupt's poll, whose context is a SignalWatch: true if a signal's handler has raised. Cheap:
 * twenty times a second at most it takes the GIL and lets handlers run. */
bool signal_raised(void *context);

#endif
