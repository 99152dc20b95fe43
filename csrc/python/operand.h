/* Checks the array arguments of run() and raises errors for the ones that it cannot use. */
#ifndef SGEMM_OPERAND_H
#define SGEMM_OPERAND_H

#include "../core/strided.h"
#include "python.h"

/* Describes the NumPy array `argument`; `name` is its name in messages. Sets TypeError or
 * ValueError and returns false if it is not a two-dimensional float32 array. */
bool operand_array(PyObject *argument, const char *name, Strided *array);

/* The same for C, which must have the shape of A @ B. */
bool operand_c(PyObject *argument, const Strided *A, const Strided *B, Strided *array);

/* If a C of that shape can be broadcast to rows x cols, sets a ValueError that suggests the call
 * and returns true. `broadcast_call` is the beginning of the call, such as
 * "numpy.broadcast_to(C". */
bool operand_refuse_bias(int64_t rows, int64_t cols, int dimensions, const int64_t *shape,
                         const char *broadcast_call);

/* Sets ValueError for an array whose shape, a tuple, does not have two entries. */
void operand_refuse_shape(PyObject *shape, const char *name);

/* Whether A @ B is defined. Sets ValueError if not. */
bool operand_shapes_agree(const Strided *A, const Strided *B);

/* Whether an array has the result's shape. Sets ValueError if not; for a NumPy array the message
 * suggests a call of NumPy. */
bool operand_has_result_shape(const Strided *array, const char *name, const Strided *A,
                              const Strided *B, bool is_numpys);

/* Whether a result can be written to out. Sets ValueError in the same way if not. */
bool operand_is_writable(bool read_only, const Strided *out, bool is_numpys);

#endif
