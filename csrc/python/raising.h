/* This package's own exceptions, and failures as exceptions. */
#ifndef SGEMM_PYTHON_RAISING_H
#define SGEMM_PYTHON_RAISING_H

#include <stdbool.h>

#include "../core/status.h"
#include "python.h"

/* Makes the exceptions, in the module and its state; false with an exception set on failure. */
bool raising_add_exceptions(PyObject *module);

/* Sets the exception that stands for a failure; `module` is this package's extension. */
void raise_status(PyObject *module, const Status *status);

/* Polled while the GIL is released: takes it, lets signal handlers run, gives it back. `context` is
 * where the PyThreadState * of the thread that released it is. True if a handler raised. */
bool signal_raised(void *context);

#endif
