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
    bool transposed; /* the array is the transpose of the block */
} DeviceArray;

static const DeviceArrays *arrays(void)
{
    return device_kinds[DEVICE_CUDA]->arrays;
}

DeviceBuffer *device_array_block(PyObject *array)
{
    return ((DeviceArray *)array)->block;
}

static bool is_transposed(PyObject *array)
{
    return ((DeviceArray *)array)->transposed;
}

Strided device_array_strided(PyObject *array)
{
    const Strided by_rows = strided_of_matrix(&device_array_block(array)->matrix);
    return is_transposed(array) ? strided_transposed(&by_rows) : by_rows;
}

static PyObject *new_array(PyTypeObject *type, DeviceBuffer *block, bool transposed)
{
    DeviceArray *const array = PyObject_New(DeviceArray, type);
    if (!array) {
        arrays()->drop(block);
        return NULL;
    }
    array->block = block;
    array->transposed = transposed;
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

/* Sets the exception for the status and returns NULL. */
static PyObject *failed(PyObject *self, const Status *status)
{
    raise_status(PyType_GetModule(Py_TYPE(self)), status);
    return NULL;
}

/* Whether this process can reach the memory; if not, sets an exception. A forked child cannot use
 * its parent's GPU memory: CUDA calls there would fail or never return. */
static bool is_reachable(PyObject *self)
{
    int count;
    const Status why = cuda_count(&count);
    if (count > 0) {
        return true;
    }
    const Status status =
        status_error(STATUS_DEVICE,
                     "this process cannot reach the array on " GPU_KIND ":%d: copy it to host "
                     "memory with numpy.asarray() before the fork. Cause: %s",
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

static PyObject *transpose(PyObject *self, void *Py_UNUSED(closure))
{
    DeviceBuffer *const block = device_array_block(self);
    arrays()->share(block);
    return new_array(Py_TYPE(self), block, !is_transposed(self));
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

/* Because __array_ufunc__ is None, NumPy leaves operators to Python, whose answers would mislead:
 * an error about concatenation for a sum, False for a comparison. */
static PyObject *refuse_numpy(PyObject *one, PyObject *other)
{
    if (!PyArray_Check(one) && !PyArray_Check(other)) {
        return Py_NewRef(Py_NotImplemented);
    }
    PyErr_SetString(PyExc_TypeError,
                    "NumPy cannot compute with an array on a GPU: pass numpy.asarray(r), a copy "
                    "in host memory, instead of the DeviceArray r");
    return NULL;
}

static PyObject *compare(PyObject *self, PyObject *other, int Py_UNUSED(operation))
{
    return refuse_numpy(self, other);
}

/* Objects without an equality of their own are hashed by identity. */
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
    /* If the result is not ready, name the default stream, which then waits for it. The stream of
     * the result itself may no longer exist, or mean another stream in another thread. */
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
        is_transposed(self) ? pair(array.row_bytes, array.col_bytes) : Py_NewRef(Py_None);
    return Py_BuildValue("{s:N, s:s, s:(KO), s:N, s:i, s:N}", "shape", shape(self, closure),
                         "typestr", "<f4", "data",
                         (unsigned long long)(uintptr_t)block->matrix.data, Py_False, "strides",
                         strides, "version", 3, "stream", stream);
}

/* ------------------------------------------------------------------ to NumPy */

/* A row-major copy of the block. */
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
    if (!by_rows || !is_transposed(self)) {
        return by_rows;
    }
    PyObject *const transposed = PyArray_Transpose((PyArrayObject *)by_rows, NULL);
    Py_DECREF(by_rows);
    return transposed;
}

PyDoc_STRVAR(array_doc, "__array__($self, dtype=None, copy=None)\n--\n\n"
                        "Copy the matrix to host memory, as a numpy.ndarray. numpy.asarray "
                        "calls this.");

static PyObject *array(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *wanted = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO:__array__", names, &wanted, &copy)) {
        return NULL;
    }
    if (copy == Py_False) {
        PyErr_SetString(PyExc_ValueError, "converting an array on a GPU to NumPy needs a copy: "
                                          "pass copy=None");
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

/* The content of an exported capsule: DLPack's structure of either version and the data it points
 * to. */
typedef struct {
    union {
        DlManaged plain;
        DlVersioned versioned;
    } as;
    int64_t shape[2], strides[2];
    DeviceBuffer *block;
} Export;

static void end_export(void *context)
{
    Export *const exported = context;
    arrays()->drop(exported->block);
    free(exported);
}

static void end_plain(DlManaged *self)
{
    end_export(self->context);
}

static void end_versioned(DlVersioned *self)
{
    end_export(self->context);
}

/* A capsule that no library consumed still has its original name. */
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

/* A capsule for the block, row-major or transposed. Takes over the caller's share of the block. */
static PyObject *new_capsule(DeviceBuffer *block, bool transposed, bool versioned, bool copied)
{
    Export *const exported = calloc(1, sizeof *exported);
    if (!exported) {
        arrays()->drop(block);
        return PyErr_NoMemory();
    }
    exported->block = block;
    exported->shape[transposed] = block->matrix.rows;
    exported->shape[!transposed] = block->matrix.cols;
    exported->strides[transposed] = block->matrix.cols;
    exported->strides[!transposed] = 1;
    const DlTensor tensor = {.data = block->matrix.data,
                             .device = {DLPACK_GPU, block->device},
                             .dimensions = 2,
                             .element = {DLPACK_FLOAT, 32, 1},
                             .shape = exported->shape,
                             .strides = exported->strides};
    PyObject *capsule;
    if (versioned) {
        exported->as.versioned =
            (DlVersioned){{1, 0}, exported, end_versioned, copied ? DLPACK_COPIED : 0, tensor};
        capsule = PyCapsule_New(exported, "dltensor_versioned", discard_versioned);
    } else {
        exported->as.plain = (DlManaged){tensor, exported, end_plain};
        capsule = PyCapsule_New(exported, "dltensor", discard_plain);
    }
    if (!capsule) {
        end_export(exported);
    }
    return capsule;
}

/* Converts the consumer's stream from DLPack's numbering. *stream is NULL if no stream needs to
 * wait. */
static bool consumer_stream(PyObject *argument, void **stream)
{
    const long long number =
        argument == Py_None ? DLPACK_DEFAULT_STREAM : PyLong_AsLongLong(argument);
    if (PyErr_Occurred()) {
        return false;
    }
    const bool is_default = number == DLPACK_DEFAULT_STREAM;
    const long long least = DLPACK_DEFAULT_STREAM ? 1 : 3; /* ROCm does not use 1 and 2 */
    if (!is_default && number != -1 && number < least) {
        PyErr_Format(
            PyExc_ValueError,
            "stream is %lld, which is not a stream in DLPack: pass %d for the default stream",
            number, DLPACK_DEFAULT_STREAM);
        return false;
    }
    *stream = number == -1 ? NULL : (void *)(uintptr_t)(is_default ? 1 : number);
    return true;
}

/* Checks where the consumer wants the array: on its own GPU, or, with *host set, in host memory. */
static bool consumer_device(PyObject *argument, const DeviceBuffer *block, bool *host)
{
    int kind = DLPACK_GPU, index = block->device;
    if (argument != Py_None &&
        !(PyTuple_Check(argument) && PyArg_ParseTuple(argument, "ii", &kind, &index))) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "dl_device must be a tuple of two ints");
        }
        return false;
    }
    *host = kind == DLPACK_CPU;
    if (!*host && (kind != DLPACK_GPU || index != block->device)) {
        PyErr_Format(PyExc_BufferError,
                     "cannot export an array on " GPU_KIND
                     ":%d to DLPack's device (%d, %d): pass its own device, (%d, %d), or "
                     "(%d, 0) for a copy in host memory",
                     block->device, kind, index, DLPACK_GPU, block->device, DLPACK_CPU);
        return false;
    }
    return true;
}

static PyObject *export_host_copy(PyObject *self, PyObject *copy, PyObject *max_version)
{
    if (copy == Py_False) {
        PyErr_SetString(PyExc_BufferError,
                        "exporting an array on a GPU to host memory needs a copy: pass copy=None");
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
    "Export the array with DLPack, for torch.from_dlpack and others. The consumer's stream, in\n"
    "DLPack's numbering, waits for the result. The memory is freed after both the array and the\n"
    "consumer have released it.");

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
        return export_host_copy(self, copy, max_version);
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
    return new_capsule(block, is_transposed(self), major >= 1, copy == Py_True);
}

PyDoc_STRVAR(dlpack_device_doc,
             "__dlpack_device__($self)\n--\n\n"
             "The GPU as DLPack's pair of device type, 2 for CUDA and 10 for ROCm, and index.");

static PyObject *dlpack_device(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return Py_BuildValue("(ii)", DLPACK_GPU, device_array_block(self)->device);
}

/* ------------------------------------------------------------------ the type */

static PyGetSetDef attributes[] = {
    {"shape", shape, NULL, "Rows and columns.", NULL},
    {"ndim", dimensions, NULL, "2.", NULL},
    {"size", size, NULL, "The number of elements.", NULL},
    {"nbytes", bytes, NULL, "The number of bytes in all elements.", NULL},
    {"T", transpose, NULL, "The transposed matrix: a view of the same memory.", NULL},
    {"dtype", dtype, NULL, "numpy.dtype('float32').", NULL},
    {"device", device, NULL, "The GPU that holds the array, such as 'cuda:0'.", NULL},
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
    "A float32 matrix on a GPU: the result of run() for operands on a GPU.\n\n"
    "It has no operators. Other libraries import it without a copy: cupy.asarray(r),\n"
    "torch.from_dlpack(r), jax.dlpack.from_dlpack(r). numpy.asarray(r) copies it to host memory.\n"
    "It is C-contiguous, and r.T is a view of the same memory. run() accepts both as operands and "
    "as\nout. The memory is reused after all arrays and libraries that share it have released it.");

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
    /* This keeps NumPy's operators from copying the array to host memory. NumPy looks for None on
     * the type itself, not for a descriptor, so the type cannot be immutable. */
    if (type && PyObject_SetAttrString(type, "__array_ufunc__", Py_None) < 0) {
        Py_CLEAR(type);
    }
    return type;
}
