/* DLPack's exchange API: C functions that the arrays of some libraries, such as PyTorch 2.10 and
 * newer, offer through their type. With them a call costs no Python code of the library, is queued
 * in the library's current stream, and returns an array of the library. */
#ifndef SGEMM_PYTHON_DLPACK_EXCHANGE_H
#define SGEMM_PYTHON_DLPACK_EXCHANGE_H

#include "../../runtime/view.h"
#include "dlpack.h"
#include "python.h"

/* The functions of the argument's type; NULL, without an exception, if it has none. */
const DlExchange *dlpack_exchange_of(PyObject *module, PyObject *argument);

/* Borrows a view, which is valid while the caller holds the GIL. False, without an exception, for
 * an array that has no memory to view, such as a sparse tensor. */
bool dlpack_exchange_view(const DlExchange *exchange, PyObject *argument, DlTensor *tensor);

/* A new C-contiguous array of the library on that device, and its address in *memory. NULL with an
 * exception set on failure. */
PyObject *dlpack_exchange_new(const DlExchange *exchange, int device_kind, int device_index,
                              int axes, const int64_t *shape, void **memory);

/* Whether the library marks the array as read-only: 1 or 0, or -1 with an exception set. */
int dlpack_exchange_is_read_only(const DlExchange *exchange, PyObject *argument);

#endif
