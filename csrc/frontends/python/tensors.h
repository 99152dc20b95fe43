/* What run() must know of PyTorch's tensors beside their memory: lazy views, derivatives and
 * versions. */
#ifndef SGEMM_PYTHON_TENSORS_H
#define SGEMM_PYTHON_TENSORS_H

#include <stdbool.h>

#include "python.h"

/* Sets an exception and returns true if the argument's values are not those in its memory, or if
 * their derivative would be lost. `name` is the argument's name in messages. */
bool tensor_is_refused(const char *name, PyObject *argument);

/* Sets an exception that says why run() cannot use this argument, and which call works. Returns
 * false, without an exception, if the argument is no tensor or nothing is known against it. */
bool tensor_refuse(const char *name, PyObject *argument);

/* Tells autograd that the memory of `out` is about to change, so that it does not compute gradients
 * from the new values. Returns false with an exception set on failure. */
bool tensor_count_write(PyObject *out);

#endif
