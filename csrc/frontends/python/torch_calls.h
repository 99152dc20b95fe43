/* Python's side of the PyTorch front end: the set-up of ../torch, and the products with scalar
 * arguments or out_dtype. */
#ifndef SGEMM_PYTHON_TORCH_CALLS_H
#define SGEMM_PYTHON_TORCH_CALLS_H

#include "python.h"

/* _torch_open(): finds PyTorch's C functions. */
PyObject *torch_open(PyObject *module, PyObject *ignored);

/* _torch_register(): adds the kernels of the operators, which are defined already. */
PyObject *torch_register(PyObject *module, PyObject *ignored);

/* _torch_precision(backend, operation): the number of float32's precision; None if unknown. */
PyObject *torch_precision(PyObject *module, PyObject *args);

/* _torch_start(key, variant, min_flops, min_stack_flops, reduced): takes over aten::mm and
 * aten::bmm at a dispatch key. `reduced` is a function that tells whether TF32 is allowed, or None:
 * read PyTorch's setting directly. */
PyObject *torch_start(PyObject *module, PyObject *args);

/* _torch_stop(): restores aten::mm and aten::bmm. */
PyObject *torch_stop(PyObject *module, PyObject *ignored);

/* _torch_kernel(name, fallback, example): a kernel for aten::addmm, baddbmm, a form of these, or a
 * product with out_dtype. It calls `fallback` with the same arguments for calls that it leaves to
 * PyTorch. `example` is any float32 tensor. */
PyObject *torch_kernel(PyObject *module, PyObject *args);

/* _torch_stats(reset): the counts of calls for each operator and outcome, and the text of the last
 * failure. */
PyObject *torch_stats(PyObject *module, PyObject *reset);

#endif
