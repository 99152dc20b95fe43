#include "measuring.h"

#include <math.h>
#include <stdlib.h>

#include "../../runtime/catalog.h"
#include "choosing.h"
#include "interop.h"
#include "lists.h"
#include "operand.h"
#include "raising.h"
#include "state.h"

enum { MOST_MEASURED = 64 };

/* The context of Measurement.compete. */
typedef struct {
    PyThreadState *thread; /* for PyEval_RestoreThread */
    PyObject *names;       /* a tuple of names and competitors */
} Competitors;

/* The CUDA array interface, version 3, of a matrix or a batch on a GPU that is ready. It is not
 * marked read-only, because PyTorch refuses read-only arrays. */
static PyObject *interface_of(const Matrix *matrix, int64_t count)
{
    const int64_t size = sizeof(float);
    const int64_t shape[] = {count, matrix->rows, matrix->cols};
    const int64_t strides[] = {size * matrix->batch_stride, size * matrix->row_stride,
                               size * matrix->col_stride};
    const int skipped = count == 1; /* a single matrix has two dimensions */
    return Py_BuildValue(
        "{s:N,s:s,s:(KO),s:N,s:i,s:O}", "shape", operand_tuple(3 - skipped, shape + skipped),
        "typestr", "<f4", "data", (unsigned long long)(uintptr_t)matrix->data, Py_False, "strides",
        operand_tuple(3 - skipped, strides + skipped), "version", 3, "stream", Py_None);
}

/* Calls the competitor at index `place`. If it raises, its exception stays set, and the measurement
 * raises it. */
static Status compete(void *context, int place, const Sgemm *problem)
{
    Competitors *const competitors = context;
    PyEval_RestoreThread(competitors->thread);
    PyObject *const A = interface_of(&problem->A, problem->count),
                    *const B = interface_of(&problem->B, problem->count),
                    *const C = interface_of(&problem->C, problem->count);
    PyObject *const competitor = PyTuple_GetItem(competitors->names, place);
    PyObject *const done =
        A && B && C && competitor ? PyObject_CallFunctionObjArgs(competitor, A, B, C, NULL) : NULL;
    const bool raised = !done;
    Py_XDECREF(done);
    Py_XDECREF(A);
    Py_XDECREF(B);
    Py_XDECREF(C);
    competitors->thread = PyEval_SaveThread();
    return raised ? status_error(STATUS_DEVICE, "a competitor raised") : status_ok();
}

/* Finds the variants of a tuple of names and competitors. A competitor is a callable; its entry in
 * `variants` is NULL. */
static bool take_variants(PyObject *module, PyObject *names, int device, const Variant **variants,
                          int *count)
{
    *count = (int)PyTuple_Size(names);
    if (*count < 1 || *count > MOST_MEASURED) {
        PyErr_Format(PyExc_ValueError, "1 to %d variants can be measured together, not %d",
                     MOST_MEASURED, *count);
        return false;
    }
    for (int index = 0; index < *count; ++index) {
        variants[index] = NULL;
        if (PyCallable_Check(PyTuple_GetItem(names, index))) {
            continue;
        }
        variants[index] = choose_variant(PyTuple_GetItem(names, index), catalog_find_measured);
        if (!variants[index] || !can_run(module, variants[index], DEVICE_CUDA, device)) {
            return false;
        }
    }
    return true;
}

static PyObject *seconds_by_variant(const double *seconds, int rounds, int count)
{
    PyObject *const result = PyList_New(0);
    for (int index = 0; result && index < count; ++index) {
        PyObject *const samples = PyList_New(0);
        bool done = samples != NULL;
        for (int round = 0; done && round < rounds; ++round) {
            const double value = seconds[round * count + index];
            done = isnan(value) || append(samples, PyFloat_FromDouble(value));
        }
        if (!append(result, samples) || !done) {
            break;
        }
    }
    return result ? as_tuple(result) : NULL;
}

const char measure_doc[] = PyDoc_STR(
    "_measure(names, A, B, device, sets, rounds, C=None) -> tuple with a list of seconds for\n"
    "each variant\n"
    "\n"
    "Measures kernel times on GPU number `device`. In each round every variant computes A @ B\n"
    "once; A and B may be batches, (count, M, K) and (count, K, N). Successive products cycle "
    "through `sets` copies of the operands. Samples that the\n"
    "host delayed are left out. Instead of a name, `names` may contain a callable that takes\n"
    "the CUDA array interfaces of A, B and the result, and queues the product in the default\n"
    "stream. C initializes the first set's result, and receives its final content.");

/* Stores an operand whose matrices are in C or Fortran order and follow one another without gaps.
 * False if they do not. */
static bool take_dense(const Strided *array, int64_t count, Matrix *matrix)
{
    if (!strided_as_matrix(array, matrix)) {
        return false;
    }
    const bool by_columns = matrix->col_stride != 1;
    const int64_t size = matrix->rows * matrix->cols;
    return (by_columns ? matrix->col_stride : matrix->row_stride) ==
               (by_columns ? matrix->rows : matrix->cols) &&
           (count == 1 || matrix->batch_stride == size);
}

/* Checks and stores the operands of a measurement. C, which receives the result, may be NULL. */
static bool take_measured(PyObject *module, PyObject *A, PyObject *B, PyObject *C, Measurement *m)
{
    View a, b, c;
    Product product = {.count = 1};
    Batch batch = {0};
    if (!operand_array(A, "A", &a) || !operand_array(B, "B", &b) ||
        !operands_fit(&a, &b, &product, &batch) ||
        (C && (!operand_array(C, "C", &c) ||
               !operand_fits_result(&c, OF_OUT, interop_library(C), &product, &batch) ||
               !operand_is_writable(!PyArray_ISWRITEABLE((PyArrayObject *)C), &c, true)))) {
        return false;
    }
    const bool batched = a.axes == 3;
    if ((a.axes != 2 && !batched) || a.axes != b.axes || (batched && a.shape[0] != b.shape[0])) {
        PyErr_SetString(PyExc_ValueError, "one product or one batch is measured: pass matrices A "
                                          "and B, or as many of each");
        return false;
    }
    m->products = batched ? a.shape[0] : 1;
    for (int operand = 0; batched && operand < OPERANDS; ++operand) {
        Strided *const operands[OPERANDS] = {&product.A, &product.B, &product.C, &product.out};
        operands[operand]->batch_bytes = batch.bytes[operand][0];
    }
    int gpus;
    const Status why = cuda_count(&gpus);
    if (m->device < 0 || m->device >= gpus) {
        PyErr_Format(state_of(module)->DeviceError,
                     "kernel times are measured on a GPU, but there is no " GPU_KIND ":%d%s%s",
                     m->device, why.code == STATUS_OK ? "" : ": ", why.message);
        return false;
    }
    if (m->sets < 1 || m->rounds < 0 || m->products < 1 ||
        !take_dense(&product.A, m->products, &m->A) ||
        !take_dense(&product.B, m->products, &m->B) ||
        (C && (!PyArray_IS_C_CONTIGUOUS((PyArrayObject *)C) ||
               !take_dense(&product.out, m->products, &m->C)))) {
        PyErr_SetString(PyExc_ValueError,
                        "a measurement needs contiguous A and B in C or Fortran order, C in C "
                        "order, sets >= 1 and rounds >= 0");
        return false;
    }
    return true;
}

/* Takes m->count samples per round with `take`. `names` holds the competitors, if there are any. */
static PyObject *take_samples(PyObject *module, PyObject *names, Measurement *m,
                              Status (*take)(const Measurement *measurement))
{
    m->seconds = calloc((size_t)m->rounds * (size_t)m->count + 1, sizeof *m->seconds);
    if (!m->seconds) {
        return PyErr_NoMemory();
    }
    Competitors competitors = {PyEval_SaveThread(), names};
    m->compete = compete;
    m->context = &competitors;
    const Status status = take(m);
    PyEval_RestoreThread(competitors.thread);
    PyObject *result = NULL;
    if (status.code != STATUS_OK) {
        if (!PyErr_Occurred()) {
            raise_status(module, &status);
        }
    } else {
        result = seconds_by_variant(m->seconds, m->rounds, m->count);
    }
    free(m->seconds);
    return result;
}

PyObject *measure(PyObject *module, PyObject *args)
{
    PyObject *names, *A, *B, *C = NULL;
    Measurement m = {0};
    const Variant *variants[MOST_MEASURED];
    if (!PyArg_ParseTuple(args, "O!OOiii|O", &PyTuple_Type, &names, &A, &B, &m.device, &m.sets,
                          &m.rounds, &C) ||
        !take_measured(module, A, B, C, &m) ||
        !take_variants(module, names, m.device, variants, &m.count)) {
        return NULL;
    }
    m.variants = variants;
    return take_samples(module, names, &m, device_kinds[DEVICE_CUDA]->measure);
}

const char measure_copies_doc[] =
    PyDoc_STR("_measure_copies(A, B, C, device, rounds) -> tuple of one list of seconds\n\n"
              "Measures the copies that run makes, with the host's clock: A and B to GPU number "
              "`device`, and\n"
              "a result back into C, whose content is then undefined.");

PyObject *measure_copies(PyObject *module, PyObject *args)
{
    PyObject *A, *B, *C;
    Measurement m = {.count = 1, .sets = 1};
    if (!PyArg_ParseTuple(args, "OOOii", &A, &B, &C, &m.device, &m.rounds) ||
        !take_measured(module, A, B, C, &m)) {
        return NULL;
    }
    return take_samples(module, NULL, &m, device_kinds[DEVICE_CUDA]->measure_copies);
}
