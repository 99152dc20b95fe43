/* Checks the array arguments of run() and raises errors for the ones that it cannot use. */
#ifndef SGEMM_OPERAND_H
#define SGEMM_OPERAND_H

#include "../../runtime/batch.h"
#include "python.h"

/* Describes the NumPy array `argument`; `name` is its name in messages. Sets TypeError and returns
 * false if it is not an array of float32. */
bool operand_array(PyObject *argument, const char *name, View *view);

/* The same for an argument of run(): "A" and "B" may also be of float16 or bfloat16. */
bool operand_of_run(PyObject *argument, const char *name, View *view);

/* Swaps the last two axes. Sets ValueError and returns false if there are fewer: `A` of gram(). */
bool operand_transpose(View *A);

/* Stores A and B in the product, and the batch of their leading axes. Sets ValueError and returns
 * false if A @ B is not defined. */
bool operands_fit(const View *A, const View *B, Product *product, Batch *batch);

/* How messages about C and out name the caller's library. */
typedef struct {
    bool is_numpys;
    const char *broadcast_call; /* the beginning of the call that broadcasts C */
} OperandLibrary;

/* Stores C (OF_C) or out (OF_OUT) in the product and the batch. Sets ValueError and returns false
 * if it does not have the result's shape. */
bool operand_fits_result(const View *array, int operand, OperandLibrary library, Product *product,
                         Batch *batch);

/* Whether a result can be written to out. Sets ValueError if not. */
bool operand_is_writable(bool read_only, const View *out, bool is_numpys);

/* The entries as a tuple of ints. A new reference, or NULL with an exception set. */
PyObject *operand_tuple(int count, const int64_t *entries);

#endif
