#include "device_array.h"

#include <stdlib.h>
#include <string.h>

#include "choosing.h"
#include "dlpack.h"
#include "raising.h"
#include "result.h"

typedef struct {
    PyObject ob_base;
    DeviceBuffer *block;
    bool turned; /* the rows of the block are the columns */
} DeviceArray;

static const DeviceArrays *arrays(void)
{
    return device_kinds[DEVICE_CUDA]->arrays;
}

DeviceBuffer *device_array_block(PyObject *array)
{
    return ((DeviceArray *)array)->block;
}

static bool is_turned(PyObject *array)
{
    return ((DeviceArray *)array)->turned;
}

Strided device_array_strided(PyObject *array)
{
    const Strided by_rows = strided_of_matrix(&device_array_block(array)->matrix);
    return is_turned(array) ? strided_transposed(&by_rows) : by_rows;
}

static PyObject *new_array(PyTypeObject *type, DeviceBuffer *block, bool turned)
{
    DeviceArray *const array = PyObject_New(DeviceArray, type);
    if (!array) {
        arrays()->drop(block);
        return NULL;
    }
    array->block = block;
    array->turned = turned;
    return (PyObject *)array;
}

PyObject *device_array_new(PyTypeObject *type, DeviceBuffer *block)
{
    return new_array(type, block, false);
}

static void deallocate(PyObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    arrays()->drop(device_array_block(self));
    PyObject_Free(self);
    Py_DECREF(type);
}

/* NULL, with the exception for the status set. */
static PyObject *failed(PyObject *self, const Status *status)
{
    raise_status(PyType_GetModule(Py_TYPE(self)), status);
    return NULL;
}

/* Whether this process can reach the memory; if not, sets the exception. No child can that was forked
 * from the process which has it: to call CUDA there would fail, or never return. */
static bool is_reachable(PyObject *self)
{
    int count;
    const Status why = cuda_count(&count);
    if (count > 0) {
        return true;
    }
    const Status status =
        status_error(STATUS_DEVICE,
                     "the array is out of reach on " GPU_KIND ":%d: copy it to host memory before "
                     "the fork, by numpy.asarray(). For %s",
                     device_array_block(self)->device, why.message);
    failed(self, &status);
    return false;
}

/* ------------------------------------------------------------------ attributes */

static PyObject *pair(long long first, long long second)
{
    return Py_BuildValue("(LL)", first, second);
}

static PyObject *shape(PyObject *self, void *Py_UNUSED(closure))
{
    const Strided array = device_array_strided(self);
    return pair(array.rows, array.cols);
}

static int64_t element_count(PyObject *self)
{
    const Matrix *const matrix = &device_array_block(self)->matrix;
    return matrix->rows * matrix->cols;
}

static PyObject *dimensions(PyObject *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    return PyLong_FromLong(2);
}

static PyObject *size(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(element_count(self));
}

static PyObject *bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(element_count(self) * (int64_t)sizeof(float));
}

static PyObject *transposed(PyObject *self, void *Py_UNUSED(closure))
{
    DeviceBuffer *const block = device_array_block(self);
    arrays()->share(block);
    return new_array(Py_TYPE(self), block, !is_turned(self));
}

static Py_ssize_t length(PyObject *self)
{
    return (Py_ssize_t)device_array_strided(self).rows;
}

static PyObject *dtype(PyObject *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    return (PyObject *)PyArray_DescrFromType(NPY_FLOAT);
}

static PyObject *device(PyObject *self, void *Py_UNUSED(closure))
{
    return PyUnicode_FromFormat(GPU_KIND ":%d", device_array_block(self)->device);
}

/* What NumPy leaves to the array by __array_ufunc__, and Python would answer misleadingly: a sum by
 * speaking of concatenation, a comparison by False. */
static PyObject *refuse_numpy(PyObject *one, PyObject *other)
{
    if (!PyArray_Check(one) && !PyArray_Check(other)) {
        return Py_NewRef(Py_NotImplemented);
    }
    PyErr_SetString(PyExc_TypeError,
                    "NumPy computes with no array on a GPU: pass numpy.asarray(r), a "
                    "copy in host memory, for the DeviceArray r");
    return NULL;
}

static PyObject *compare(PyObject *self, PyObject *other, int Py_UNUSED(operation))
{
    return refuse_numpy(self, other);
}

/* By identity, as that of any object that compares so. */
static Py_hash_t hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)self / sizeof(DeviceArray));
}

static PyObject *represent(PyObject *self)
{
    const Strided array = device_array_strided(self);
    return PyUnicode_FromFormat(
        "DeviceArray(shape=(%lld, %lld), dtype=float32, device='" GPU_KIND ":%d')",
        (long long)array.rows, (long long)array.cols, device_array_block(self)->device);
}

static PyObject *cuda_array_interface(PyObject *self, void *closure)
{
    DeviceBuffer *const block = device_array_block(self);
    if (!is_reachable(self)) {
        return NULL;
    }
    /* Of a result that is not ready, the default stream, which waits, and not its own: that may be gone,
     * or be another one for another thread. The consumer goes on from there in any. */
    const bool ready = arrays()->is_ready(block);
    Status status = ready ? status_ok() : arrays()->export_to(block, (void *)1);
    if (status.code == STATUS_OK) {
        status = arrays()->export_to(block, NULL);
    }
    if (status.code != STATUS_OK) {
        return failed(self, &status);
    }
    PyObject *const stream = ready ? Py_NewRef(Py_None) : PyLong_FromLong(1);
    const Strided array = device_array_strided(self);
    PyObject *const strides =
        is_turned(self) ? pair(array.row_bytes, array.col_bytes) : Py_NewRef(Py_None);
    return Py_BuildValue("{s:N, s:s, s:(KO), s:N, s:i, s:N}", "shape", shape(self, closure),
                         "typestr", "<f4", "data",
                         (unsigned long long)(uintptr_t)block->matrix.data, Py_False, "strides",
                         strides, "version", 3, "stream", stream);
}

/* ------------------------------------------------------------------ to NumPy */

/* A copy of the block, by rows. */
static PyObject *block_to_numpy(PyObject *self)
{
    DeviceBuffer *const block = device_array_block(self);
    const npy_intp counts[2] = {block->matrix.rows, block->matrix.cols};
    if (!is_reachable(self)) {
        return NULL;
    }
    PyObject *const array = result_array(2, counts, device_kinds[DEVICE_CUDA], block->device);
    if (!array || PyArray_SIZE((PyArrayObject *)array) == 0) {
        return array;
    }
    Status status;
    float *const data = PyArray_DATA((PyArrayObject *)array);
    Py_BEGIN_ALLOW_THREADS;
    status = arrays()->download(block, data);
    Py_END_ALLOW_THREADS;
    if (status.code != STATUS_OK) {
        Py_DECREF(array);
        return failed(self, &status);
    }
    return array;
}

static PyObject *to_numpy(PyObject *self)
{
    PyObject *const by_rows = block_to_numpy(self);
    if (!by_rows || !is_turned(self)) {
        return by_rows;
    }
    PyObject *const turned = PyArray_Transpose((PyArrayObject *)by_rows, NULL);
    Py_DECREF(by_rows);
    return turned;
}

PyDoc_STRVAR(array_doc, "__array__($self, dtype=None, copy=None)\n--\n\n"
                        "A numpy.ndarray with a copy of the matrix in host memory, as "
                        "numpy.asarray makes it.");

static PyObject *array(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *wanted = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO:__array__", names, &wanted, &copy)) {
        return NULL;
    }
    if (copy == Py_False) {
        PyErr_SetString(PyExc_ValueError, "an array on a GPU becomes one in host memory only by a "
                                          "copy: pass copy=None");
        return NULL;
    }
    PyObject *const values = to_numpy(self);
    if (!values || wanted == Py_None) {
        return values;
    }
    PyObject *const converted = PyObject_CallMethod(values, "astype", "O", wanted);
    Py_DECREF(values);
    return converted;
}

/* ------------------------------------------------------------------ to other libraries */

/* What one capsule lends: DLPack's structure of either version, and what it points to. */
typedef struct {
    union {
        DlManaged plain;
        DlVersioned versioned;
    } as;
    int64_t shape[2], strides[2];
    DeviceBuffer *block;
} Loan;

static void end_loan(void *context)
{
    Loan *const loan = context;
    arrays()->drop(loan->block);
    free(loan);
}

static void end_plain(DlManaged *self)
{
    end_loan(self->context);
}

static void end_versioned(DlVersioned *self)
{
    end_loan(self->context);
}

/* A capsule that nobody took still has its first name. */
static void discard_plain(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        end_plain(PyCapsule_GetPointer(capsule, "dltensor"));
    }
}

static void discard_versioned(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        end_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    }
}

/* A capsule with the share of the block that is passed, by rows or turned. */
static PyObject *lend(DeviceBuffer *block, bool turned, bool versioned, bool copied)
{
    Loan *const loan = calloc(1, sizeof *loan);
    if (!loan) {
        arrays()->drop(block);
        return PyErr_NoMemory();
    }
    loan->block = block;
    loan->shape[turned] = block->matrix.rows;
    loan->shape[!turned] = block->matrix.cols;
    loan->strides[turned] = block->matrix.cols;
    loan->strides[!turned] = 1;
    const DlTensor tensor = {.data = block->matrix.data,
                             .device = {DLPACK_GPU, block->device},
                             .dimensions = 2,
                             .element = {DLPACK_FLOAT, 32, 1},
                             .shape = loan->shape,
                             .strides = loan->strides};
    PyObject *capsule;
    if (versioned) {
        loan->as.versioned =
            (DlVersioned){{1, 0}, loan, end_versioned, copied ? DLPACK_COPIED : 0, tensor};
        capsule = PyCapsule_New(loan, "dltensor_versioned", discard_versioned);
    } else {
        loan->as.plain = (DlManaged){tensor, loan, end_plain};
        capsule = PyCapsule_New(loan, "dltensor", discard_plain);
    }
    if (!capsule) {
        end_loan(loan);
    }
    return capsule;
}

/* The consumer's stream as DLPack numbers it; NULL if nothing is to be waited for. */
static bool consumer_stream(PyObject *argument, void **stream)
{
    const long long number =
        argument == Py_None ? DLPACK_DEFAULT_STREAM : PyLong_AsLongLong(argument);
    if (PyErr_Occurred()) {
        return false;
    }
    const bool is_default = number == DLPACK_DEFAULT_STREAM;
    const long long least = DLPACK_DEFAULT_STREAM ? 1 : 3; /* ROCm has no other below */
    if (!is_default && number != -1 && number < least) {
        PyErr_Format(
            PyExc_ValueError,
            "stream is %lld, which DLPack gives no meaning: pass %d for the default stream", number,
            DLPACK_DEFAULT_STREAM);
        return false;
    }
    *stream = number == -1 ? NULL : (void *)(uintptr_t)(is_default ? 1 : number);
    return true;
}

/* Where the consumer wants the array: here, or, with *host set, in host memory. */
static bool consumer_device(PyObject *argument, const DeviceBuffer *block, bool *host)
{
    int kind = DLPACK_GPU, index = block->device;
    if (argument != Py_None &&
        !(PyTuple_Check(argument) && PyArg_ParseTuple(argument, "ii", &kind, &index))) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "dl_device is no tuple of two numbers");
        }
        return false;
    }
    *host = kind == DLPACK_CPU;
    if (!*host && (kind != DLPACK_GPU || index != block->device)) {
        PyErr_Format(PyExc_BufferError,
                     "the array is on " GPU_KIND
                     ":%d, which is DLPack's device (%d, %d), and is lent there "
                     "or copied to host memory, device (%d, 0): not (%d, %d)",
                     block->device, DLPACK_GPU, block->device, DLPACK_CPU, kind, index);
        return false;
    }
    return true;
}

static PyObject *lend_copy_in_host_memory(PyObject *self, PyObject *copy, PyObject *max_version)
{
    if (copy == Py_False) {
        PyErr_SetString(PyExc_BufferError, "an array on a GPU is in host memory only as a copy");
        return NULL;
    }
    PyObject *const values = to_numpy(self);
    PyObject *const method = values ? PyObject_GetAttrString(values, "__dlpack__") : NULL;
    PyObject *const none = PyTuple_New(0);
    PyObject *const keywords = Py_BuildValue("{s:O}", "max_version", max_version);
    PyObject *const capsule =
        method && none && keywords ? PyObject_Call(method, none, keywords) : NULL;
    Py_XDECREF(keywords);
    Py_XDECREF(none);
    Py_XDECREF(method);
    Py_XDECREF(values);
    return capsule;
}

PyDoc_STRVAR(
    dlpack_doc,
    "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
    "Lend the memory by DLPack, as torch.from_dlpack asks. The stream, a number as DLPack gives "
    "it,\nwaits for the result. The memory stays until both the array and the consumer let go of "
    "it.");

static PyObject *dlpack(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream_argument = Py_None, *max_version = Py_None, *dl_device = Py_None,
             *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO:__dlpack__", names, &stream_argument,
                                     &max_version, &dl_device, &copy)) {
        return NULL;
    }
    DeviceBuffer *block = device_array_block(self);
    int major = 0, minor = 0;
    bool host;
    void *stream;
    if ((max_version != Py_None && !PyArg_Parse(max_version, "(ii)", &major, &minor)) ||
        !consumer_device(dl_device, block, &host) || !consumer_stream(stream_argument, &stream)) {
        return NULL;
    }
    if (!is_reachable(self)) {
        return NULL;
    }
    if (host) {
        return lend_copy_in_host_memory(self, copy, max_version);
    }
    Status status = status_ok();
    if (copy == Py_True) {
        DeviceBuffer *duplicate = NULL;
        Py_BEGIN_ALLOW_THREADS;
        status = arrays()->duplicate(block, &duplicate);
        Py_END_ALLOW_THREADS;
        block = duplicate;
    } else {
        arrays()->share(block);
    }
    if (status.code == STATUS_OK) {
        status = arrays()->export_to(block, stream);
        if (status.code != STATUS_OK) {
            arrays()->drop(block);
        }
    }
    if (status.code != STATUS_OK) {
        return failed(self, &status);
    }
    return lend(block, is_turned(self), major >= 1, copy == Py_True);
}

PyDoc_STRVAR(dlpack_device_doc,
             "__dlpack_device__($self)\n--\n\n"
             "The GPU as DLPack's pair of a kind, 2 for CUDA and 10 for ROCm, and an index.");

static PyObject *dlpack_device(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return Py_BuildValue("(ii)", DLPACK_GPU, device_array_block(self)->device);
}

/* ------------------------------------------------------------------ the type */

static PyGetSetDef attributes[] = {
    {"shape", shape, NULL, "Rows and columns.", NULL},
    {"ndim", dimensions, NULL, "2.", NULL},
    {"size", size, NULL, "How many elements it has.", NULL},
    {"nbytes", bytes, NULL, "How many bytes they take.", NULL},
    {"T", transposed, NULL, "The matrix with rows for columns: the same memory, not a copy.", NULL},
    {"dtype", dtype, NULL, "numpy.dtype('float32').", NULL},
    {"device", device, NULL, "The GPU that it is on, as 'cuda:0'.", NULL},
    {"__cuda_array_interface__", cuda_array_interface, NULL, "The CUDA array interface, version 3.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"__array__", (PyCFunction)(void (*)(void))array, METH_VARARGS | METH_KEYWORDS, array_doc},
    {"__dlpack__", (PyCFunction)(void (*)(void))dlpack, METH_VARARGS | METH_KEYWORDS, dlpack_doc},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, dlpack_device_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    type_doc,
    "A float32 matrix on a GPU: what run() returns when its operands are there.\n\n"
    "It computes nothing, and other libraries take it as it lies: cupy.asarray(r), "
    "torch.from_dlpack(r),\njax.dlpack.from_dlpack(r). numpy.asarray(r) copies it to host memory. "
    "It is C-contiguous, r.T is a\nview of the same memory, and run() takes either as an operand "
    "or "
    "as out. Its memory is used anew when\nneither an array nor a library that took it needs it "
    "any "
    "more.");

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)deallocate}, {Py_tp_repr, (void *)represent},
    {Py_tp_getset, attributes},          {Py_tp_methods, methods},
    {Py_nb_add, (void *)refuse_numpy},   {Py_tp_richcompare, (void *)compare},
    {Py_tp_hash, (void *)hash},          {Py_mp_length, (void *)length},
    {Py_tp_doc, (void *)type_doc},       {0, NULL},
};

static PyType_Spec specification = {
    .name = "sgemm_kernels.DeviceArray",
    .basicsize = sizeof(DeviceArray),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

PyObject *device_array_make_type(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &specification, NULL);
    /* By this NumPy leaves operators to the array, which has none, and computes with no copy unasked.
     * It looks for None on the type itself: no descriptor of an attribute will do, and so the type
     * cannot be an immutable one. */
    if (type && PyObject_SetAttrString(type, "__array_ufunc__", Py_None) < 0) {
        Py_CLEAR(type);
    }
    return type;
}
