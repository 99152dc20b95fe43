/* Imports arrays of other libraries on a GPU as operands of run(). */
#ifndef SGEMM_INTEROP_H
#define SGEMM_INTEROP_H

#include "../../runtime/cuda/device_arrays.h"
#include "dlpack_exchange.h"
#include "operand.h"
#include "python.h"

/* An operand, imported for one call. */
typedef struct {
    const char *name;
    PyObject *argument;         /* borrowed */
    int device;                 /* -1: unknown, for an empty array */
    DeviceBuffer *block;        /* of a DeviceArray; NULL for other arrays */
    const DlExchange *exchange; /* NULL: the array is imported by another protocol */
    PyObject *capsule;          /* DLPack's capsule, until interop_release; NULL without one */
    View view;
    bool read_only;
    bool transposed; /* is to be transposed */
    bool ordered;    /* the call's stream is the library's current one */
} Imported;

/* Whether the argument may be an array on a GPU: 1 or 0, or -1 with an exception set. */
int interop_may_import(PyObject *module, PyObject *argument);

/* The same as operand_of_run, and also for arrays in host memory whose type has the exchange API,
 * such as CPU tensors. */
bool interop_host_operand(PyObject *module, PyObject *argument, const char *name, View *view);

/* How messages name the array's library. */
OperandLibrary interop_library(PyObject *argument);

/* Finds the GPU of imported->argument, and the protocol to import it by. Sets an exception and
 * returns false if the array is not on a GPU. */
bool interop_locate(Imported *imported, PyObject *module);

/* Sets *stream to the stream that the array's library queues its work in. */
bool interop_current_stream(const Imported *imported, void **stream);

/* Imports the array, which must have a dtype that run() takes, and makes the stream of `scope` wait
 * until it is ready. Sets an exception and returns false if it is not such an array or the library
 * refuses. The caller must call interop_release either way. */
bool interop_import(Imported *imported, StreamScope *scope, PyObject *module);

/* Releases the array to its library. */
void interop_release(Imported *imported);

/* The scope's stream waits for the work in the library's current stream, which also orders the
 * library's allocations. Sets an exception and returns false on failure. */
bool interop_await_library(const Imported *imported, StreamScope *scope, PyObject *module);

/* Sets TypeError: `host` is in host memory but `imported` is on a GPU. */
void interop_refuse_mixture(const Imported *imported, const Imported *host);

/* Sets *stream to the CUDA stream of the argument, or to NULL for None. Sets TypeError or
 * ValueError and returns false if the argument is not a stream. */
bool interop_stream(PyObject *argument, void **stream);

#endif
