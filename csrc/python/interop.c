#include "interop.h"

#include <string.h>

#include "attributes.h"
#include "choosing.h"
#include "device_array.h"
#include "dlpack.h"
#include "operand.h"
#include "raising.h"

static const char INTERFACE[] = "__cuda_array_interface__";

/* How a user of each library writes what a refusal asks for. The last one serves for any other. */
typedef struct {
    const char *module; /* how the name of its types' module begins */
    const char *send[2];
    const char *to_float32;
    const char *to_numpy;
    const char *spread; /* begins the call that broadcasts C */
    const char *guards; /* the module whose device(index) makes a GPU current, where the library has
                         * an account of its own of which one is, and lends from that one alone */
} Library;

static const Library libraries[] = {
    {"torch",
     {"torch.from_numpy(", ").cuda()"},
     ".float()",
     ".cpu().numpy()",
     "torch.broadcast_to(C",
     "torch.cuda"},
    {"jax",
     {"jax.numpy.asarray(", ")"},
     ".astype('float32')",
     ".__array__()",
     "jax.numpy.broadcast_to(C",
     NULL},
    {"",
     {"cupy.asarray(", ")"},
     ".astype('float32')",
     ".get()",
     "cupy.broadcast_to(cupy.asarray(C)",
     NULL},
};

static const Library *library_of(PyObject *argument)
{
    PyObject *const text = PyObject_GetAttrString((PyObject *)Py_TYPE(argument), "__module__");
    const char *module = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const Library *library = libraries;
    while (strncmp(module ? module : "", library->module, strlen(library->module)) != 0) {
        ++library;
    }
    Py_XDECREF(text);
    PyErr_Clear();
    return library;
}

int interop_may_lend(PyObject *argument)
{
    if (argument == Py_None || PyArray_Check(argument)) {
        return 0;
    }
    const int lends = has_attribute(argument, "__dlpack_device__");
    return lends ? lends : has_attribute(argument, INTERFACE);
}

/* ------------------------------------------------------------------ where it is */

static bool refuse_gradient(const Lent *lent)
{
    PyObject *const value = attribute_of(lent->argument, "requires_grad");
    const bool required = value == Py_True;
    Py_XDECREF(value);
    if (required) {
        PyErr_Format(PyExc_ValueError,
                     "%s requires a gradient, and run() computes none: pass %s.detach()",
                     lent->name, lent->name);
    }
    return required || PyErr_Occurred();
}

/* What makes an array of NumPy of one in host memory: what stands before its name and after, where it
 * has the attribute; the last one takes whatever lends by DLPack. */
static const struct {
    const char *attribute, *before, *after;
} to_numpy[] = {
    {"numpy", "", ".numpy()"},
    {"__array__", "numpy.asarray(", ")"},
    {NULL, "numpy.from_dlpack(", ")"},
};

static void refuse_place(const Lent *lent, long kind)
{
    PyObject *const type = PyType_GetName(Py_TYPE(lent->argument));
    if (type && (kind == DLPACK_CPU || kind == DLPACK_GPU_HOST)) {
        int way = 0, found = 0;
        while (to_numpy[way].attribute &&
               (found = has_attribute(lent->argument, to_numpy[way].attribute)) == 0) {
            ++way;
        }
        if (found >= 0) {
            PyErr_Format(PyExc_TypeError, "%s is in host memory, and of type %U: pass %s%s%s",
                         lent->name, type, to_numpy[way].before, lent->name, to_numpy[way].after);
        }
    } else if (type) {
        PyErr_Format(PyExc_TypeError,
                     "%s, of type %U, is on a device of DLPack's kind %ld: pass an array in host "
                     "memory or on a GPU that " GPU_API " knows",
                     lent->name, type, kind);
    }
    Py_XDECREF(type);
}

/* The address that the interface gives, 0 for an empty array. */
static bool address_of(PyObject *interface, const char *name, void **address, bool *read_only)
{
    PyObject *const data = PyMapping_GetItemString(interface, "data");
    PyObject *integer;
    int is_read_only;
    unsigned long long number = 0;
    const bool is_pair = data && PyTuple_Check(data);
    bool done = is_pair && PyArg_ParseTuple(data, "O!p", &PyLong_Type, &integer, &is_read_only);
    if (done) {
        number = PyLong_AsUnsignedLongLong(integer);
        done = !PyErr_Occurred();
        if (!done) {
            PyErr_Format(PyExc_ValueError, "%s.%s['data'] has %R, which is not an address", name,
                         INTERFACE, integer);
        }
    }
    if (data && !is_pair) {
        PyErr_Format(PyExc_TypeError, "%s.%s['data'] is no pair of an address and a flag", name,
                     INTERFACE);
    }
    Py_XDECREF(data);
    if (done) {
        *address = (void *)(uintptr_t)number;
        *read_only = is_read_only;
    }
    return done;
}

/* Sets the exception for a failure; true if there was none. */
static bool succeeded(PyObject *module, const Status *status)
{
    if (status->code != STATUS_OK) {
        raise_status(module, status);
    }
    return status->code == STATUS_OK;
}

static bool locate_by_interface(Lent *lent, PyObject *module)
{
    void *address;
    PyObject *const interface = PyObject_GetAttrString(lent->argument, INTERFACE);
    const bool found = interface && address_of(interface, lent->name, &address, &lent->read_only);
    Py_XDECREF(interface);
    lent->device = -1;
    if (!found || !address) {
        return found;
    }
    const Device *const cuda = device_kinds[DEVICE_CUDA];
    int gpus;
    cuda_count(&gpus);
    if (gpus <= 0) {
        lent->device = 0; /* choosing it says why there is none: nothing else here asks CUDA */
        return true;
    }
    const Status status = cuda->arrays->device_of(address, &lent->device);
    if (succeeded(module, &status) && lent->device < 0) {
        PyErr_Format(PyExc_ValueError,
                     "%s.%s names the address %p, which is not in the memory of a GPU", lent->name,
                     INTERFACE, address);
    }
    return lent->device >= 0;
}

bool interop_locate(Lent *lent, PyObject *module, PyTypeObject *ours)
{
    if (Py_TYPE(lent->argument) == ours) {
        lent->block = device_array_block(lent->argument);
        lent->device = lent->block->device;
        return true;
    }
    if (refuse_gradient(lent)) {
        return false;
    }
    PyObject *const method = attribute_of(lent->argument, "__dlpack_device__");
    if (!method) {
        return !PyErr_Occurred() && locate_by_interface(lent, module);
    }
    PyObject *const pair = PyObject_CallNoArgs(method);
    PyObject *const tuple = pair ? PySequence_Tuple(pair) : NULL;
    long kind;
    bool found = tuple && PyArg_ParseTuple(tuple, "li", &kind, &lent->device);
    /* In lent->device -1 means that an empty array may be anywhere. */
    if (tuple && (found ? lent->device < 0 : PyErr_ExceptionMatches(PyExc_OverflowError))) {
        PyErr_Format(PyExc_ValueError, "%s.__dlpack_device__() gives %R, which is not a device",
                     lent->name, tuple);
        found = false;
    }
    Py_DECREF(method);
    Py_XDECREF(pair);
    Py_XDECREF(tuple);
    if (found && kind != DLPACK_GPU && kind != DLPACK_GPU_MANAGED) {
        refuse_place(lent, kind);
        return false;
    }
    return found;
}

void interop_refuse_mixture(const Lent *lent, const char *host)
{
    const Library *const library = library_of(lent->argument);
    char place[sizeof GPU_KIND + 12] = "a GPU"; /* an empty array has no address that tells which */
    if (lent->device >= 0) {
        PyOS_snprintf(place, sizeof place, GPU_KIND ":%d", lent->device);
    }
    PyErr_Format(PyExc_TypeError,
                 "%s is on %s and %s is a numpy.ndarray, and run() moves neither unasked: pass "
                 "%s%s%s, or %s%s",
                 lent->name, place, host, library->send[0], host, library->send[1], lent->name,
                 library->to_numpy);
}

/* ------------------------------------------------------------------ what it is */

static bool refuse_dtype(const Lent *lent)
{
    PyObject *const dtype = attribute_of(lent->argument, "dtype");
    if (dtype || !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError,
                     "%s has dtype %S, and run() takes float32 alone, since it rounds nothing "
                     "silently: pass %s%s",
                     lent->name, dtype ? dtype : Py_None, lent->name,
                     library_of(lent->argument)->to_float32);
    }
    Py_XDECREF(dtype);
    return false;
}

/* Refuses an array without 2 dimensions. `shape` has the first two entries of `tuple`. */
static void refuse_shape(const Lent *lent, PyObject *tuple, const int64_t *shape)
{
    if (strcmp(lent->name, "C") != 0 ||
        !operand_refuse_bias(lent->rows, lent->cols, (int)PyTuple_Size(tuple), shape,
                             library_of(lent->argument)->spread)) {
        operand_refuse_shape(tuple, lent->name);
    }
}

bool interop_has_result_shape(const Lent *lent, const Strided *A, const Strided *B)
{
    const int64_t shape[] = {lent->array.rows, lent->array.cols};
    if (shape[0] == A->rows && shape[1] == B->cols) {
        return true;
    }
    if (strcmp(lent->name, "C") == 0 &&
        operand_refuse_bias(A->rows, B->cols, 2, shape, library_of(lent->argument)->spread)) {
        return false;
    }
    return operand_has_result_shape(&lent->array, lent->name, A, B, false);
}

/* Refuses a tensor that is no matrix, and one whose shape cannot be read. */
static void refuse_dimensions(const Lent *lent, const DlTensor *tensor)
{
    enum { MOST_DIMENSIONS = 64 }; /* as NumPy's arrays have */
    if (tensor->dimensions < 0 || tensor->dimensions > MOST_DIMENSIONS ||
        (tensor->dimensions > 0 && !tensor->shape)) {
        PyErr_Format(PyExc_ValueError,
                     "%s has %d dimensions%s, and a matrix has 2: fix the library that exports it",
                     lent->name, (int)tensor->dimensions, tensor->shape ? "" : " and no shape");
        return;
    }
    PyObject *const shape = PyTuple_New(tensor->dimensions);
    bool done = shape != NULL;
    for (int axis = 0; done && axis < tensor->dimensions; ++axis) {
        PyObject *const count = PyLong_FromLongLong(tensor->shape[axis]);
        done = count && PyTuple_SetItem(shape, axis, count) == 0;
    }
    if (done) {
        refuse_shape(lent, shape, tensor->shape);
    }
    Py_XDECREF(shape);
}

/* Whether all elements, and a copy of them without gaps, have addresses that do not wrap. */
static bool fits_in_memory(const char *data, int64_t rows, int64_t cols, int64_t row_bytes,
                           int64_t col_bytes)
{
    int64_t down, across, size, first, last, end;
    return !__builtin_mul_overflow(rows - 1, row_bytes, &down) &&
           !__builtin_mul_overflow(cols - 1, col_bytes, &across) &&
           !__builtin_mul_overflow(rows, cols, &size) &&
           !__builtin_mul_overflow(size, (int64_t)sizeof(float), &size) &&
           !__builtin_add_overflow((int64_t)(uintptr_t)data, down < 0 ? down : 0, &first) &&
           !__builtin_add_overflow(first, across < 0 ? across : 0, &first) && first >= 0 &&
           !__builtin_add_overflow((int64_t)(uintptr_t)data, down > 0 ? down : 0, &last) &&
           !__builtin_add_overflow(last, across > 0 ? across : 0, &last) &&
           !__builtin_add_overflow(last, (int64_t)sizeof(float), &end);
}

/* Whether rows and columns so many bytes apart are a matrix at `data`. Sets ValueError if not: a
 * kernel would read or write memory that the array does not have. */
static bool take_matrix(Lent *lent, void *data, int64_t rows, int64_t cols, int64_t row_bytes,
                        int64_t col_bytes)
{
    if (rows < 0 || cols < 0) {
        PyErr_Format(PyExc_ValueError,
                     "%s is lent with shape (%lld, %lld), and a matrix has no less than 0 rows and "
                     "columns: mend what lends it",
                     lent->name, (long long)rows, (long long)cols);
        return false;
    }
    const bool is_empty = rows == 0 || cols == 0;
    if (!is_empty && !data) {
        PyErr_Format(PyExc_ValueError,
                     "%s has shape (%lld, %lld) and the address 0: fix the library that exports it",
                     lent->name, (long long)rows, (long long)cols);
        return false;
    }
    if (!is_empty && !fits_in_memory(data, rows, cols, row_bytes, col_bytes)) {
        PyErr_Format(PyExc_ValueError,
                     "%s has shape (%lld, %lld) and strides of (%lld, %lld) bytes, which reach "
                     "beyond the address space: fix the library that exports it",
                     lent->name, (long long)rows, (long long)cols, (long long)row_bytes,
                     (long long)col_bytes);
        return false;
    }
    lent->array.data = data;
    lent->array.rows = rows;
    lent->array.cols = cols;
    lent->array.row_bytes = row_bytes;
    lent->array.col_bytes = col_bytes;
    return true;
}

/* The GPU was chosen by __dlpack_device__(), and the memory is on the tensor's device. */
static bool is_where_it_said(const Lent *lent, const DlTensor *tensor)
{
    const bool on_gpu =
        tensor->device.kind == DLPACK_GPU || tensor->device.kind == DLPACK_GPU_MANAGED;
    if (!on_gpu || (lent->device >= 0 && tensor->device.index != lent->device)) {
        PyErr_Format(PyExc_ValueError,
                     "%s.__dlpack_device__() names GPU %d, but the tensor that %s.__dlpack__() "
                     "exports is on device (%d, %d): fix the library that exports it",
                     lent->name, lent->device, lent->name, (int)tensor->device.kind,
                     (int)tensor->device.index);
        return false;
    }
    return true;
}

/* CuPy divides strides in bytes as unsigned numbers: its stride of -1 element is 2^62 - 1. */
static bool bytes_of_stride(int64_t stride, int64_t *bytes)
{
    return !__builtin_mul_overflow(stride, (int64_t)sizeof(float), bytes) ||
           (stride > 0 && *bytes < 0);
}

static bool take_tensor(Lent *lent, const DlTensor *tensor)
{
    if (!is_where_it_said(lent, tensor)) {
        return false;
    }
    if (tensor->element.code != DLPACK_FLOAT || tensor->element.bits != 32 ||
        tensor->element.lanes != 1) {
        return refuse_dtype(lent);
    }
    if (tensor->dimensions != 2 || !tensor->shape) {
        refuse_dimensions(lent, tensor);
        return false;
    }
    const int64_t rows = tensor->shape[0], cols = tensor->shape[1];
    int64_t strides[] = {cols, 1}, bytes[2];
    if (tensor->strides) {
        memcpy(strides, tensor->strides, sizeof strides);
    }
    uintptr_t first = 0;
    if (!bytes_of_stride(strides[0], &bytes[0]) || !bytes_of_stride(strides[1], &bytes[1]) ||
        (tensor->data &&
         __builtin_add_overflow((uintptr_t)tensor->data, tensor->byte_offset, &first))) {
        PyErr_Format(PyExc_ValueError,
                     "%s has strides of (%lld, %lld) elements and an offset of %llu bytes, which "
                     "reach beyond the address space: fix the library that exports it",
                     lent->name, (long long)strides[0], (long long)strides[1],
                     (unsigned long long)tensor->byte_offset);
        return false;
    }
    return take_matrix(lent, (void *)first, rows, cols, bytes[0], bytes[1]);
}

static bool take_capsule(Lent *lent)
{
    if (PyCapsule_IsValid(lent->capsule, "dltensor_versioned")) {
        const DlVersioned *const lender = PyCapsule_GetPointer(lent->capsule, "dltensor_versioned");
        if (lender->version.major != 1) {
            PyErr_Format(PyExc_BufferError, "%s speaks version %u of DLPack, and run() version 1",
                         lent->name, lender->version.major);
            return false;
        }
        lent->read_only = lender->flags & DLPACK_READ_ONLY;
        return take_tensor(lent, &lender->tensor);
    }
    const DlManaged *const lender = PyCapsule_GetPointer(lent->capsule, "dltensor");
    return lender && take_tensor(lent, &lender->tensor);
}

/* The method's answer to the newest form of the question, or to that of before version 1.0. */
static PyObject *ask_for_capsule(PyObject *argument, void *stream)
{
    const uintptr_t number = (uintptr_t)stream;
    PyObject *const method = PyObject_GetAttrString(argument, "__dlpack__");
    PyObject *const none = PyTuple_New(0);
    PyObject *const handle =
        PyLong_FromUnsignedLongLong(number == 1 ? DLPACK_DEFAULT_STREAM : number);
    PyObject *newest = NULL, *capsule = NULL;
    if (method && none && handle) {
        newest = Py_BuildValue("{s:O, s:(ii)}", "stream", handle, "max_version", 1, 0);
        capsule = newest ? PyObject_Call(method, none, newest) : NULL;
        if (newest && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            PyDict_DelItemString(newest, "max_version");
            capsule = PyObject_Call(method, none, newest);
        }
    }
    Py_XDECREF(newest);
    Py_XDECREF(handle);
    Py_XDECREF(none);
    Py_XDECREF(method);
    return capsule;
}

/* The same while the library takes the array's GPU for the current one: `guards` names its module
 * with device(index), which can be entered and left. */
static PyObject *ask_on_its_device(const char *guards, const Lent *lent, void *stream)
{
    PyObject *const module = PyImport_ImportModule(guards);
    PyObject *const guard =
        module ? PyObject_CallMethod(module, "device", "i", lent->device) : NULL;
    PyObject *const entered = guard ? PyObject_CallMethod(guard, "__enter__", NULL) : NULL;
    PyObject *capsule = NULL;
    if (entered) {
        PyObject *type, *value, *traceback;
        capsule = ask_for_capsule(lent->argument, stream);
        PyErr_Fetch(&type, &value, &traceback);
        PyObject *const left =
            PyObject_CallMethod(guard, "__exit__", "OOO", Py_None, Py_None, Py_None);
        if (!left) {
            Py_CLEAR(capsule);
        }
        if (type) {
            PyErr_Restore(type, value, traceback);
        }
        Py_XDECREF(left);
    }
    Py_XDECREF(entered);
    Py_XDECREF(guard);
    Py_XDECREF(module);
    return capsule;
}

/* Takes a tuple of two numbers; sets TypeError or ValueError and returns false if it is none. */
static bool pair_of(PyObject *object, int64_t pair[2])
{
    long long first, second;
    if (!PyTuple_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%R is no tuple of two numbers", object);
        return false;
    }
    if (!PyArg_ParseTuple(object, "LL", &first, &second)) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Format(PyExc_ValueError, "%R has a number that 64 bits do not hold", object);
        }
        return false;
    }
    pair[0] = first;
    pair[1] = second;
    return true;
}

/* The entry, a new reference, or None where there is none; NULL on failure. */
static PyObject *entry_of(PyObject *interface, const char *key)
{
    PyObject *const value = PyMapping_GetItemString(interface, key);
    if (!value && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return value;
}

static bool take_shape(Lent *lent, PyObject *shape, PyObject *strides, void *address)
{
    int64_t counts[2] = {0}, steps[2];
    if (PyTuple_Check(shape) && PyTuple_Size(shape) != 2) {
        if (PyTuple_Size(shape) == 1) {
            counts[0] = PyLong_AsLongLong(PyTuple_GetItem(shape, 0));
        }
        if (!PyErr_Occurred()) {
            refuse_shape(lent, shape, counts);
        }
        return false;
    }
    if (!pair_of(shape, counts)) {
        return false;
    }
    /* Row-major. If the product wraps, take_matrix refuses the number of columns. */
    steps[0] = (int64_t)((uint64_t)counts[1] * sizeof(float));
    steps[1] = sizeof(float);
    return (strides == Py_None || pair_of(strides, steps)) &&
           take_matrix(lent, address, counts[0], counts[1], steps[0], steps[1]);
}

/* Both processors that the package runs on have the least byte first. */
static bool take_element(Lent *lent, PyObject *typestr)
{
    const bool is_native =
        PyUnicode_Check(typestr) && PyUnicode_CompareWithASCIIString(typestr, "<f4") == 0;
    lent->array.swapped =
        PyUnicode_Check(typestr) && PyUnicode_CompareWithASCIIString(typestr, ">f4") == 0;
    return is_native || lent->array.swapped || refuse_dtype(lent);
}

static bool await_stream(StreamScope *scope, PyObject *module, PyObject *stream)
{
    if (stream == Py_None) {
        return true;
    }
    void *const handle = PyLong_AsVoidPtr(stream);
    if (PyErr_Occurred()) {
        return false;
    }
    const Status status = device_kinds[DEVICE_CUDA]->arrays->wait_for_stream(scope, handle);
    return succeeded(module, &status);
}

static bool borrow_by_interface(Lent *lent, StreamScope *scope, PyObject *module)
{
    PyObject *const interface = PyObject_GetAttrString(lent->argument, INTERFACE);
    PyObject *const shape = interface ? PyMapping_GetItemString(interface, "shape") : NULL;
    PyObject *const typestr = shape ? PyMapping_GetItemString(interface, "typestr") : NULL;
    PyObject *const strides = typestr ? entry_of(interface, "strides") : NULL;
    PyObject *const mask = strides ? entry_of(interface, "mask") : NULL;
    PyObject *const stream = mask ? entry_of(interface, "stream") : NULL;
    void *address = NULL;
    bool done = stream && address_of(interface, lent->name, &address, &lent->read_only) &&
                take_element(lent, typestr) && take_shape(lent, shape, strides, address);
    if (done && mask != Py_None) {
        PyErr_Format(PyExc_TypeError,
                     "%s has a mask, which would be ignored: pass an array of the "
                     "values alone",
                     lent->name);
        done = false;
    }
    done = done && await_stream(scope, module, stream);
    Py_XDECREF(interface);
    Py_XDECREF(shape);
    Py_XDECREF(typestr);
    Py_XDECREF(strides);
    Py_XDECREF(mask);
    Py_XDECREF(stream);
    return done;
}

/* DLPack before version 1.0 does not tell; where the array has the interface too, that does. */
static bool learn_of_read_only(Lent *lent)
{
    PyObject *const interface = attribute_of(lent->argument, INTERFACE);
    void *address;
    bool read_only = false;
    const bool done =
        interface ? address_of(interface, lent->name, &address, &read_only) : !PyErr_Occurred();
    Py_XDECREF(interface);
    lent->read_only = lent->read_only || read_only;
    return done;
}

static bool borrow_by_dlpack(Lent *lent, StreamScope *scope)
{
    const char *const guards = library_of(lent->argument)->guards;
    lent->capsule = ask_for_capsule(lent->argument, scope->stream);
    if (!lent->capsule && guards && PyErr_ExceptionMatches(PyExc_BufferError)) {
        PyErr_Clear();
        lent->capsule = ask_on_its_device(guards, lent, scope->stream);
    }
    return lent->capsule && take_capsule(lent) &&
           (strcmp(lent->name, "out") != 0 || learn_of_read_only(lent));
}

bool interop_borrow(Lent *lent, StreamScope *scope, PyObject *module)
{
    const Device *const cuda = device_kinds[DEVICE_CUDA];
    if (lent->block) {
        const bool writes = strcmp(lent->name, "out") == 0;
        Status status;
        /* It may wait for the device, as run_on_gpu says. */
        Py_BEGIN_ALLOW_THREADS;
        status = cuda->arrays->use(scope, lent->block, writes);
        Py_END_ALLOW_THREADS;
        lent->array = device_array_strided(lent->argument);
        return succeeded(module, &status);
    }
    const int by_dlpack = has_attribute(lent->argument, "__dlpack__");
    if (by_dlpack < 0) {
        return false;
    }
    /* Whatever the library leaves current is so until close, and no longer. */
    const Status status = cuda->arrays->open(scope->device);
    if (!succeeded(module, &status)) {
        return false;
    }
    const bool done =
        by_dlpack ? borrow_by_dlpack(lent, scope) : borrow_by_interface(lent, scope, module);
    cuda->arrays->close();
    return done;
}

/* Gives back what a capsule holds, as a consumer does: a capsule need have no destructor. */
static void consume(PyObject *capsule)
{
    if (capsule && PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DlVersioned *const lender = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        if (lender->deleter) {
            lender->deleter(lender);
        }
    } else if (capsule && PyCapsule_IsValid(capsule, "dltensor")) {
        DlManaged *const lender = PyCapsule_GetPointer(capsule, "dltensor");
        PyCapsule_SetName(capsule, "used_dltensor");
        if (lender->deleter) {
            lender->deleter(lender);
        }
    }
}

void interop_return(Lent *lent)
{
    /* The library may run Python code, which no exception of ours may meet. */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    consume(lent->capsule);
    Py_CLEAR(lent->capsule);
    PyErr_Restore(type, value, traceback);
}

/* ------------------------------------------------------------------ streams */

/* Where releases of PyTorch and CuPy whose streams lack __cuda_stream__ have the handle. */
static const char *const handle_attributes[] = {"cuda_stream", "ptr"};

/* A new reference to the handle, as an int or whatever else is there; NULL with an exception set if
 * the argument is no stream. */
static PyObject *handle_of(PyObject *argument)
{
    PyObject *const method = attribute_of(argument, "__cuda_stream__");
    if (method) {
        int64_t version_and_handle[2];
        PyObject *const answer = PyObject_CallNoArgs(method);
        const bool done = answer && pair_of(answer, version_and_handle);
        Py_DECREF(method);
        Py_XDECREF(answer);
        return done ? PyLong_FromLongLong(version_and_handle[1]) : NULL;
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (PyLong_Check(argument)) {
        return Py_NewRef(argument);
    }
    const int waits =
        has_attribute(argument, "wait_event"); /* CuPy's events and pointers have a ptr as well */
    PyObject *handle = NULL;
    for (size_t each = 0;
         waits > 0 && each < sizeof handle_attributes / sizeof *handle_attributes && !handle &&
         !PyErr_Occurred();
         ++each) {
        handle = attribute_of(argument, handle_attributes[each]);
    }
    if (handle || PyErr_Occurred()) {
        return handle;
    }
    PyObject *const type = PyType_GetName(Py_TYPE(argument));
    if (type) {
        PyErr_Format(PyExc_TypeError,
                     "stream must be a " GPU_API " stream of CuPy, PyTorch or another library with "
                     "__cuda_stream__, or an int, and is of type %U: pass its handle, an int",
                     type);
        Py_DECREF(type);
    }
    return NULL;
}

bool interop_stream(PyObject *argument, void **stream)
{
    *stream = NULL;
    if (argument == Py_None) {
        return true;
    }
    PyObject *const number = handle_of(argument);
    const long long handle = number ? PyLong_AsLongLong(number) : 0;
    Py_XDECREF(number);
    if (handle < 0 && !PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError,
                     "stream is %lld, which is no " GPU_API
                     " stream: pass None, or the handle of one",
                     handle);
    }
    /* 0 stands for the default stream, as in CuPy and PyTorch; its handle by itself is 1. */
    *stream = (void *)(uintptr_t)(handle ? handle : 1);
    return !PyErr_Occurred();
}
