#include "measuring.h"

#include <math.h>
#include <stdlib.h>

#include "../core/catalog.h"
#include "choosing.h"
#include "lists.h"
#include "operand.h"
#include "raising.h"
#include "state.h"

enum { MOST_MEASURED = 64 };

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
    "_measure(names, A, B, device, sets, rounds) -> tuple of lists of seconds, one list a "
    "variant\n\n"
    "Kernel times on GPU number device: in each round each variant named computes A @ B once, by "
    "turns,\n"
    "going through `sets` equal sets of operands. A sample that the host delayed is left out.");

/* The operands of a measurement, A and B in C or Fortran order; C, where the result is copied to, may
 * be NULL. */
static bool take_measured(PyObject *module, PyObject *A, PyObject *B, PyObject *C, Measurement *m)
{
    Strided a, b, c;
    if (!operand_array(A, "A", &a) || !operand_array(B, "B", &b) || !operand_shapes_agree(&a, &b) ||
        (C && (!operand_array(C, "C", &c) || !operand_has_result_shape(&c, "C", &a, &b, true) ||
               !operand_is_writable(!PyArray_ISWRITEABLE((PyArrayObject *)C), &c, true)))) {
        return false;
    }
    int gpus;
    const Status why = cuda_count(&gpus);
    if (m->device < 0 || m->device >= gpus) {
        PyErr_Format(state_of(module)->DeviceError,
                     "kernel times are measured on a GPU, and there is no cuda:%d: %s", m->device,
                     why.message);
        return false;
    }
    if (m->sets < 1 || m->rounds < 0 || !PyArray_ISONESEGMENT((PyArrayObject *)A) ||
        !PyArray_ISONESEGMENT((PyArrayObject *)B) || !strided_as_matrix(&a, &m->A) ||
        !strided_as_matrix(&b, &m->B) ||
        (C && (!PyArray_IS_C_CONTIGUOUS((PyArrayObject *)C) || !strided_as_matrix(&c, &m->C)))) {
        PyErr_SetString(PyExc_ValueError,
                        "a measurement needs A and B in C or Fortran order, without gaps, C in C "
                        "order, sets >= 1 and rounds >= 0");
        return false;
    }
    return true;
}

/* Takes the samples, count a round. */
static PyObject *take_samples(PyObject *module, Measurement *m,
                              Status (*take)(const Measurement *measurement))
{
    m->seconds = calloc((size_t)m->rounds * (size_t)m->count + 1, sizeof *m->seconds);
    if (!m->seconds) {
        return PyErr_NoMemory();
    }
    PyThreadState *const thread = PyEval_SaveThread();
    const Status status = take(m);
    PyEval_RestoreThread(thread);
    PyObject *result = NULL;
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
    } else {
        result = seconds_by_variant(m->seconds, m->rounds, m->count);
    }
    free(m->seconds);
    return result;
}

PyObject *measure(PyObject *module, PyObject *args)
{
    PyObject *names, *A, *B;
    Measurement m = {0};
    const Variant *variants[MOST_MEASURED];
    if (!PyArg_ParseTuple(args, "O!OOiii", &PyTuple_Type, &names, &A, &B, &m.device, &m.sets,
                          &m.rounds) ||
        !take_measured(module, A, B, NULL, &m) ||
        !take_variants(module, names, m.device, variants, &m.count)) {
        return NULL;
    }
    m.variants = variants;
    return take_samples(module, &m, device_kinds[DEVICE_CUDA]->measure);
}

const char measure_copies_doc[] = PyDoc_STR(
    "_measure_copies(A, B, C, device, rounds) -> tuple of one list of seconds\n\n"
    "What run copies, by the host's clock: A and B to GPU number device, and a result back into "
    "C, whose\ncontent is undefined afterwards.");

PyObject *measure_copies(PyObject *module, PyObject *args)
{
    PyObject *A, *B, *C;
    Measurement m = {.count = 1, .sets = 1};
    if (!PyArg_ParseTuple(args, "OOOii", &A, &B, &C, &m.device, &m.rounds) ||
        !take_measured(module, A, B, C, &m)) {
        return NULL;
    }
    return take_samples(module, &m, device_kinds[DEVICE_CUDA]->measure_copies);
}
