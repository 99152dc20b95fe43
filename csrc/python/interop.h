/* Arrays that other libraries have on a GPU, as operands of run(). */
#ifndef SGEMM_INTEROP_H
#define SGEMM_INTEROP_H

#include "../core/strided.h"
#include "../cuda/device_arrays.h"
#include "python.h"

/* An operand, lent for one call. */
typedef struct {
    const char *name;
    PyObject *argument;  /* borrowed */
    int device;          /* -1: an empty array may be anywhere */
    DeviceBuffer *block; /* a DeviceArray's; NULL of other arrays */
    PyObject *capsule;   /* what DLPack lends by, until interop_return */
    Strided array;
    int64_t rows, cols; /* of C: those of A @ B, before C is borrowed */
    bool read_only;
} Lent;

/* Whether the argument may be an array of another library, or a DeviceArray: not of NumPy. 1 or 0, or
 * -1 with the exception set that asking it raised. */
int interop_may_lend(PyObject *argument);

/* Finds out where lent->argument, called lent->name, is. `ours` is the type DeviceArray. Sets an
 * exception and returns false if it is on no GPU. */
bool interop_locate(Lent *lent, PyObject *module, PyTypeObject *ours);

/* Borrows it: describes it as a float32 matrix that is ready for what the scope's stream does next.
 * Sets an exception and returns false if it is none, or is not lent. interop_return is owed either
 * way. */
bool interop_borrow(Lent *lent, StreamScope *scope, PyObject *module);

/* Checks that it has the shape of A @ B. Sets ValueError and returns false if not. */
bool interop_has_result_shape(const Lent *lent, const Strided *A, const Strided *B);

/* Returns it to its library. */
void interop_return(Lent *lent);

/* Says that `host` is NumPy's while `lent` is on a GPU. */
void interop_refuse_mixture(const Lent *lent, const char *host);

/* The CUDA stream that the argument stands for: NULL for None. Sets TypeError or ValueError and
 * returns false if it is none. */
bool interop_stream(PyObject *argument, void **stream);

#endif
