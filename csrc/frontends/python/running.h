/* A call of run(), from its parsed arguments to the result. */
#ifndef SGEMM_PYTHON_RUNNING_H
#define SGEMM_PYTHON_RUNNING_H

#include <stdbool.h>

#include "../../runtime/multi_gpu.h"
#include "../../runtime/product.h"
#include "interop.h"
#include "python.h"

/* The arguments. An omitted array, device or stream is None; an omitted alpha or beta is NULL. */
typedef struct {
    const Variant *variant;
    PyObject *A, *B, *C, *alpha, *beta, *out, *device, *stream;
    struct DeviceBuffer *pairs; /* of a prepared B: its fp16 pairs; NULL without any */
    bool is_prepared;
    bool is_gram; /* multiplies A by its transpose; B is A */
} RunArguments;

/* Runs the call. A new reference to the result, or NULL with an exception set. */
PyObject *run_product(PyObject *module, const RunArguments *given);

/* The same for arrays on a GPU; in running_on_gpu.c. `product` already has the variant, alpha and
 * beta. */
PyObject *run_on_gpu(PyObject *module, const RunArguments *arguments, Product *product);

/* The parts of run_product. All set an exception on failure. */

/* Sets alpha and beta of the product. */
bool run_take_factors(const RunArguments *arguments, Product *product);

/* Whether any of the arrays may be on a GPU: 1 or 0, or -1 with an exception set. */
int run_may_be_on_gpu(PyObject *module, const RunArguments *arguments);

/* Stores A, B and C, in host memory, in the product and the batch. */
bool run_take_operands(PyObject *module, const RunArguments *arguments, Product *product,
                       struct Batch *batch);

/* A new reference to the array that receives the result: `out`, or a new array of the library that
 * A belongs to. */
PyObject *run_take_out(PyObject *module, const RunArguments *arguments, Product *product,
                       struct Batch *batch);

/* Checks that beta and C fit. A beta that is not 0 needs a C. A C without a beta is ignored, with a
 * warning. Sets an exception and returns false if they do not fit, or if warnings are errors. */
bool beta_fits_c(const RunArguments *arguments, const Product *product);

/* The parts of run_on_gpu. All set an exception on failure. */

/* The index of the GPU that holds all operands, or -1. */
int run_locate(PyObject *module, Imported operands[OPERANDS]);

/* Lists the GPUs to compute on, first the GPU of the operands, and returns their number; 0 if
 * `device` does not include that GPU. */
int run_choose_gpus(PyObject *module, const Variant *variant, PyObject *device, int home,
                    int devices[MOST_GPUS]);

/* If all `count` operands belong to one library with the exchange API, looks up its current stream,
 * which is the default for *stream, and notes whether the call is queued there. A prepared B
 * belongs to no library: events order the work with it. */
bool run_share_stream(Imported *operands, int64_t count, bool B_is_prepared, void **stream);

/* Begins work in a stream. device_kinds[DEVICE_CUDA]->arrays->leave ends it. */
bool run_enter(PyObject *module, int device, void *stream, StreamScope *scope);

/* Imports the operands of a product and checks that they fit together. */
bool run_import(PyObject *module, StreamScope *scope, Imported operands[OPERANDS], Product *product,
                struct Batch *batch);

/* A result that A's library allocates, in the order of its current stream. */
PyObject *run_new_result(PyObject *module, StreamScope *scope, const Imported *A, Product *product,
                         struct Batch *batch);

/* Whether A's library, rather than the package, allocates a missing `out`. */
bool run_library_allocates(const Imported *A, const StreamScope *scope);

/* For operands in host memory: sets an exception and returns false if there is a stream. */
bool run_has_no_stream(const RunArguments *arguments);

#endif
