/* A Python argument as an array of run(): what is accepted, and what a refusal says. */
#ifndef SGEMM_OPERAND_H
#define SGEMM_OPERAND_H

#include "../core/strided.h"
#include "python.h"

/* Describes the array `argument`, called `name`, whose memory stays its own. Sets TypeError or
 * ValueError and returns false if it is not a two-dimensional float32 array. */
bool operand_array(PyObject *argument, const char *name, Strided *array);

/* Describes C likewise, which must have the shape of A @ B. */
bool operand_c(PyObject *argument, const Strided *A, const Strided *B, Strided *array);

/* If a C of that shape can be broadcast to rows x cols, sets ValueError, which names the call that
 * does so, and returns true. `spread` is how the call begins, as "numpy.broadcast_to(C". */
bool operand_refuse_bias(int64_t rows, int64_t cols, int dimensions, const int64_t *shape,
                         const char *spread);

/* Refuses an array whose shape, a tuple, has not two entries: sets ValueError. */
void operand_refuse_shape(PyObject *shape, const char *name);

/* Checks that A @ B is defined. Sets ValueError and returns false if not. */
bool operand_shapes_agree(const Strided *A, const Strided *B);

/* Checks that an array has the result's shape. Sets ValueError, with NumPy's words for what is
 * needed if the array is NumPy's, and returns false if not. */
bool operand_has_result_shape(const Strided *array, const char *name, const Strided *A,
                              const Strided *B, bool is_numpys);

/* Checks that a result can be written into out. Sets ValueError likewise and returns false if not. */
bool operand_is_writable(bool read_only, const Strided *out, bool is_numpys);

#endif
