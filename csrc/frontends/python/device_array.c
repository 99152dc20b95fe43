#include "device_array.h"

#include <stdlib.h>
#include <string.h>

#include "choosing.h"
#include "dlpack.h"
#include "operand.h"
#include "raising.h"
#include "result.h"

typedef struct {
    PyObject ob_base;
    DeviceBuffer *block;
    int axes;
    int64_t *shape; /* then the strides in bytes: axes entries each */
    int64_t *bytes;
} DeviceArray;

static const DeviceArrays *arrays(void)
{
    return device_kinds[DEVICE_CUDA]->arrays;
}

DeviceBuffer *device_array_block(PyObject *array)
{
    return ((DeviceArray *)array)->block;
}

static const DeviceArray *of(PyObject *array)
{
    return (const DeviceArray *)array;
}

void device_array_view(PyObject *array, View *view)
{
    const DeviceArray *const self = of(array);
    view->data = (char *)self->block->matrix.data;
    view->axes = self->axes;
    view->swapped = false;
    view->type = self->block->type;
    memcpy(view->shape, self->shape, (size_t)self->axes * sizeof *self->shape);
    memcpy(view->bytes, self->bytes, (size_t)self->axes * sizeof *self->bytes);
}

/* An array without shape and strides: the caller sets them. */
static DeviceArray *new_array(PyTypeObject *type, DeviceBuffer *block, int axes)
{
    int64_t *const entries = malloc((size_t)(2 * axes + 1) * sizeof *entries);
    DeviceArray *const array = entries ? PyObject_New(DeviceArray, type) : NULL;
    if (!array) {
        free(entries);
        arrays()->drop(block);
        return entries ? NULL : (DeviceArray *)PyErr_NoMemory();
    }
    array->block = block;
    array->axes = axes;
    array->shape = entries;
    array->bytes = entries + axes;
    return array;
}

PyObject *device_array_new(PyTypeObject *type, DeviceBuffer *block, int axes, const int64_t *shape)
{
    DeviceArray *const array = new_array(type, block, axes);
    int64_t bytes = element_bytes(block->type);
    for (int axis = axes; array && axis-- > 0;) {
        array->shape[axis] = shape[axis];
        array->bytes[axis] = bytes;
        bytes *= shape[axis] > 0 ? shape[axis] : 1;
    }
    return (PyObject *)array;
}

/* A view of the same memory. Its axis i is axis order[i] of the array. */
static PyObject *permuted(PyObject *self, const int *order)
{
    DeviceBuffer *const block = device_array_block(self);
    arrays()->share(block);
    DeviceArray *const view = new_array(Py_TYPE(self), block, of(self)->axes);
    for (int axis = 0; view && axis < view->axes; ++axis) {
        view->shape[axis] = of(self)->shape[order[axis]];
        view->bytes[axis] = of(self)->bytes[order[axis]];
    }
    return (PyObject *)view;
}

static void deallocate(PyObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    arrays()->drop(device_array_block(self));
    free(of(self)->shape);
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

static PyObject *shape(PyObject *self, void *Py_UNUSED(closure))
{
    return operand_tuple(of(self)->axes, of(self)->shape);
}

static int64_t element_count(PyObject *self)
{
    int64_t count = 1;
    for (int axis = 0; axis < of(self)->axes; ++axis) {
        count *= of(self)->shape[axis];
    }
    return count;
}

/* Whether the elements are in the order of their addresses. */
static bool is_contiguous(PyObject *self)
{
    int64_t bytes = element_bytes(of(self)->block->type);
    bool is = true;
    for (int axis = of(self)->axes; axis-- > 0;) {
        const int64_t length = of(self)->shape[axis];
        is = is && (length == 1 || of(self)->bytes[axis] == bytes);
        bytes *= length;
    }
    return is || element_count(self) == 0;
}

static PyObject *dimensions(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(of(self)->axes);
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
    int order[VIEW_AXES];
    for (int axis = 0; axis < of(self)->axes; ++axis) {
        order[axis] = of(self)->axes - 1 - axis;
    }
    return permuted(self, order);
}

static PyObject *transpose_matrices(PyObject *self, void *Py_UNUSED(closure))
{
    const int axes = of(self)->axes;
    int order[VIEW_AXES];
    if (axes < 2) {
        return PyErr_Format(PyExc_ValueError,
                            "mT transposes the last two dimensions, but the array has %d", axes);
    }
    for (int axis = 0; axis < axes; ++axis) {
        order[axis] = axis;
    }
    order[axes - 2] = axes - 1;
    order[axes - 1] = axes - 2;
    return permuted(self, order);
}

static Py_ssize_t length(PyObject *self)
{
    if (of(self)->axes == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of an array without dimensions");
        return -1;
    }
    return (Py_ssize_t)of(self)->shape[0];
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
    PyObject *const tuple = shape(self, NULL);
    PyObject *const text =
        tuple
            ? PyUnicode_FromFormat("DeviceArray(shape=%S, dtype=float32, device='" GPU_KIND ":%d')",
                                   tuple, device_array_block(self)->device)
            : NULL;
    Py_XDECREF(tuple);
    return text;
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
    PyObject *const strides =
        is_contiguous(self) ? Py_NewRef(Py_None) : operand_tuple(of(self)->axes, of(self)->bytes);
    return Py_BuildValue("{s:N, s:s, s:(KO), s:N, s:i, s:N}", "shape", shape(self, closure),
                         "typestr", "<f4", "data",
                         (unsigned long long)(uintptr_t)block->matrix.data, Py_False, "strides",
                         strides, "version", 3, "stream", stream);
}

/* ------------------------------------------------------------------ to NumPy */

/* A copy of the block as a NumPy array of one dimension. */
static PyObject *block_to_numpy(PyObject *self)
{
    DeviceBuffer *const block = device_array_block(self);
    const npy_intp count = (npy_intp)element_count(self);
    if (!is_reachable(self)) {
        return NULL;
    }
    PyObject *const array = result_array(1, &count, device_kinds[DEVICE_CUDA], block->device);
    if (!array || count == 0) {
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
    PyObject *const memory = block_to_numpy(self);
    if (!memory) {
        return NULL;
    }
    npy_intp counts[VIEW_AXES], strides[VIEW_AXES];
    for (int axis = 0; axis < of(self)->axes; ++axis) {
        counts[axis] = (npy_intp)of(self)->shape[axis];
        strides[axis] = (npy_intp)of(self)->bytes[axis];
    }
    PyObject *const array =
        PyArray_New(&PyArray_Type, of(self)->axes, counts, NPY_FLOAT, strides,
                    PyArray_DATA((PyArrayObject *)memory), 0, NPY_ARRAY_WRITEABLE, NULL);
    if (!array) {
        Py_DECREF(memory);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)array, memory) < 0) { /* steals the memory */
        Py_DECREF(array);
        return NULL;
    }
    PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_UPDATE_ALL);
    return array;
}

PyDoc_STRVAR(array_doc, "__array__($self, dtype=None, copy=None)\n--\n\n"
                        "Copy the array to host memory, as a numpy.ndarray. numpy.asarray "
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
    int64_t shape[VIEW_AXES], strides[VIEW_AXES];
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

/* A capsule for an array's elements in a block. Takes over the caller's share of the block. */
static PyObject *new_capsule(const DeviceArray *array, DeviceBuffer *block, bool versioned,
                             bool copied)
{
    Export *const exported = calloc(1, sizeof *exported);
    if (!exported) {
        arrays()->drop(block);
        return PyErr_NoMemory();
    }
    exported->block = block;
    for (int axis = 0; axis < array->axes; ++axis) {
        exported->shape[axis] = array->shape[axis];
        exported->strides[axis] = array->bytes[axis] / (int64_t)sizeof(float);
    }
    const DlTensor tensor = {.data = block->matrix.data,
                             .device = {DLPACK_GPU, block->device},
                             .dimensions = array->axes,
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
    return new_capsule(of(self), block, major >= 1, copy == Py_True);
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
    {"shape", shape, NULL, "The lengths of the dimensions.", NULL},
    {"ndim", dimensions, NULL, "The number of dimensions.", NULL},
    {"size", size, NULL, "The number of elements.", NULL},
    {"nbytes", bytes, NULL, "The number of bytes in all elements.", NULL},
    {"T", transpose, NULL, "The dimensions in reverse order: a view of the same memory.", NULL},
    {"mT", transpose_matrices, NULL,
     "The last two dimensions transposed, as for a batch of matrices: a view of the same memory.",
     NULL},
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
    "A float32 array on a GPU: the result of run() for operands on a GPU.\n\n"
    "It has no operators. Other libraries import it without a copy: cupy.asarray(r),\n"
    "torch.from_dlpack(r), jax.dlpack.from_dlpack(r). numpy.asarray(r) copies it to host memory.\n"
    "It is C-contiguous; r.T and r.mT are views of the same memory. run() accepts all as operands "
    "and "
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
