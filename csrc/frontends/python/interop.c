#include "interop.h"

#include <string.h>

#include "attributes.h"
#include "choosing.h"
#include "device_array.h"
#include "dlpack.h"
#include "element.h"
#include "operand.h"
#include "raising.h"
#include "state.h"
#include "tensors.h"

static const char INTERFACE[] = "__cuda_array_interface__";

/* The calls of each library that error messages suggest. The last entry is for all other
 * libraries. */
typedef struct {
    const char *module; /* the prefix of __module__ of its types */
    const char *send[2];
    const char *to_float32;
    const char *to_numpy;
    const char *broadcast_call; /* the beginning of the call that broadcasts C */
    const char *guards; /* the module whose device(index) makes a GPU the library's current one, if
                         * the library exports arrays only from its current GPU */
} Library;

static const Library libraries[] = {
    {"torch",
     {"torch.from_numpy(", ".astype('float32')).cuda()"},
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

static bool is_gpu(int32_t kind)
{
    return kind == DLPACK_GPU || kind == DLPACK_GPU_MANAGED;
}

static bool is_host(int32_t kind)
{
    return kind == DLPACK_CPU || kind == DLPACK_GPU_HOST;
}

int interop_may_import(PyObject *module, PyObject *argument)
{
    if (argument == Py_None || PyArray_Check(argument)) {
        return 0;
    }
    if ((PyObject *)Py_TYPE(argument) == state_of(module)->DeviceArray) {
        return 1;
    }
    const DlExchange *const exchange = dlpack_exchange_of(module, argument);
    DlTensor tensor;
    if (exchange && dlpack_exchange_view(exchange, argument, &tensor)) {
        return !is_host(tensor.device.kind);
    }
    const int importable = has_attribute(argument, "__dlpack_device__");
    return importable ? importable : has_attribute(argument, INTERFACE);
}

/* ------------------------------------------------------------------ the device of an array */

/* How to convert an array in host memory to NumPy: the text before and after its name, if it has
 * the attribute. The last entry works for every array with DLPack. */
static const struct {
    const char *attribute, *before, *after;
} to_numpy[] = {
    {"numpy", "", ".numpy()"},
    {"__array__", "numpy.asarray(", ")"},
    {NULL, "numpy.from_dlpack(", ")"},
};

static void refuse_place(const Imported *imported, long kind)
{
    PyObject *const type = PyType_GetName(Py_TYPE(imported->argument));
    if (type && is_host((int32_t)kind)) {
        int way = 0, found = 0;
        while (to_numpy[way].attribute &&
               (found = has_attribute(imported->argument, to_numpy[way].attribute)) == 0) {
            ++way;
        }
        if (found >= 0) {
            PyErr_Format(PyExc_TypeError, "%s is in host memory and has type %U: pass %s%s%s",
                         imported->name, type, to_numpy[way].before, imported->name,
                         to_numpy[way].after);
        }
    } else if (type) {
        PyErr_Format(
            PyExc_TypeError,
            "%s, of type %U, is on a device of DLPack's type %ld: pass a NumPy array or an "
            "array on a " GPU_API " GPU",
            imported->name, type, kind);
    }
    Py_XDECREF(type);
}

/* Reads the address and the read-only flag of the interface. The address is 0 for an empty
 * array. */
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
        PyErr_Format(PyExc_TypeError, "%s.%s['data'] is not a pair of an address and a flag", name,
                     INTERFACE);
    }
    Py_XDECREF(data);
    if (done) {
        *address = (void *)(uintptr_t)number;
        *read_only = is_read_only;
    }
    return done;
}

/* Whether the status is a success; otherwise sets the exception. */
static bool succeeded(PyObject *module, const Status *status)
{
    if (status->code != STATUS_OK) {
        raise_status(module, status);
    }
    return status->code == STATUS_OK;
}

static bool locate_by_interface(Imported *imported, PyObject *module)
{
    void *address;
    PyObject *const interface = PyObject_GetAttrString(imported->argument, INTERFACE);
    const bool found =
        interface && address_of(interface, imported->name, &address, &imported->read_only);
    Py_XDECREF(interface);
    imported->device = -1;
    if (!found || !address) {
        return found;
    }
    const Device *const cuda = device_kinds[DEVICE_CUDA];
    int gpus;
    cuda_count(&gpus);
    if (gpus <= 0) {
        imported->device = 0; /* choose_gpu will then say why there is no GPU */
        return true;
    }
    const Status status = cuda->arrays->device_of(address, &imported->device);
    if (succeeded(module, &status) && imported->device < 0) {
        PyErr_Format(PyExc_ValueError,
                     "%s.%s has the address %p, which is not in the memory of a GPU",
                     imported->name, INTERFACE, address);
    }
    return imported->device >= 0;
}

bool interop_locate(Imported *imported, PyObject *module)
{
    if ((PyObject *)Py_TYPE(imported->argument) == state_of(module)->DeviceArray) {
        imported->block = device_array_block(imported->argument);
        imported->device = imported->block->device;
        return true;
    }
    if (tensor_is_refused(imported->name, imported->argument)) {
        return false;
    }
    const DlExchange *const exchange = dlpack_exchange_of(module, imported->argument);
    DlTensor tensor;
    const bool is_viewed = exchange && dlpack_exchange_view(exchange, imported->argument, &tensor);
    if (exchange && !is_viewed && tensor_refuse(imported->name, imported->argument)) {
        return false;
    }
    if (is_viewed && is_gpu(tensor.device.kind)) {
        imported->exchange = exchange;
        imported->device = tensor.device.index;
        return true;
    }
    PyObject *const method = attribute_of(imported->argument, "__dlpack_device__");
    if (!method) {
        return !PyErr_Occurred() && locate_by_interface(imported, module);
    }
    PyObject *const pair = PyObject_CallNoArgs(method);
    PyObject *const tuple = pair ? PySequence_Tuple(pair) : NULL;
    long kind;
    bool found = tuple && PyArg_ParseTuple(tuple, "li", &kind, &imported->device);
    /* An index of -1 is invalid here: in imported->device it means an empty array on no device. */
    if (tuple && (found ? imported->device < 0 : PyErr_ExceptionMatches(PyExc_OverflowError))) {
        PyErr_Format(PyExc_ValueError, "%s.__dlpack_device__() returns %R, which is not a device",
                     imported->name, tuple);
        found = false;
    }
    Py_DECREF(method);
    Py_XDECREF(pair);
    Py_XDECREF(tuple);
    if (found && !is_gpu((int32_t)kind)) {
        refuse_place(imported, kind);
        return false;
    }
    return found;
}

bool interop_current_stream(const Imported *imported, void **stream)
{
    if (imported->exchange->current_stream(DLPACK_GPU, imported->device, stream) != 0) {
        return false;
    }
    *stream = *stream ? *stream : (void *)1; /* see interop_stream */
    return true;
}

OperandLibrary interop_library(PyObject *argument)
{
    if (PyArray_Check(argument)) {
        return (OperandLibrary){true, "numpy.broadcast_to(C"};
    }
    return (OperandLibrary){false, library_of(argument)->broadcast_call};
}

void interop_refuse_mixture(const Imported *imported, const Imported *host)
{
    const Library *const library = library_of(imported->argument);
    const bool is_numpys = PyArray_Check(host->argument);
    char place[sizeof GPU_KIND + 12] = "a GPU"; /* the GPU of an empty array is unknown */
    if (imported->device >= 0) {
        PyOS_snprintf(place, sizeof place, GPU_KIND ":%d", imported->device);
    }
    PyErr_Format(
        PyExc_TypeError,
        "%s is on %s but %s is %s, and run() does not move arrays: pass %s%s%s, or %s%s",
        imported->name, place, host->name, is_numpys ? "a numpy.ndarray" : "in host memory",
        is_numpys ? library->send[0] : "", host->name, is_numpys ? library->send[1] : ".cuda()",
        imported->name, is_numpys ? library->to_numpy : ".cpu()");
}

/* ------------------------------------------------------------------ shape, strides and dtype */

static bool refuse_dtype(const Imported *imported)
{
    if (tensor_refuse(imported->name, imported->argument)) {
        return false;
    }
    PyObject *const dtype = attribute_of(imported->argument, "dtype");
    if (dtype || !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%s has dtype %S, %s %s%s", imported->name,
                     dtype ? dtype : Py_None, element_rule(imported->name), imported->name,
                     library_of(imported->argument)->to_float32);
    }
    Py_XDECREF(dtype);
    return false;
}

/* Whether neither the elements' addresses nor the size of a contiguous copy overflow. */
static bool fits_in_memory(const View *view)
{
    const int64_t element = element_bytes(view->type);
    int64_t size = element, last = (int64_t)(uintptr_t)view->data, first = last, end;
    bool fits = first >= 0;
    for (int axis = 0; fits && axis < view->axes; ++axis) {
        int64_t reach;
        fits = !__builtin_mul_overflow(view->shape[axis] - 1, view->bytes[axis], &reach) &&
               !__builtin_mul_overflow(size, view->shape[axis], &size) &&
               !__builtin_add_overflow(first, reach < 0 ? reach : 0, &first) && first >= 0 &&
               !__builtin_add_overflow(last, reach > 0 ? reach : 0, &last);
    }
    return fits && !__builtin_add_overflow(last, element, &end);
}

/* Sets ValueError for an impossible array. The format has a place for the name, the shape and the
 * strides in bytes. */
static void refuse_view(const Imported *imported, const char *format)
{
    const View *const view = &imported->view;
    PyObject *const shape = operand_tuple(view->axes, view->shape), *const strides = operand_tuple(
                                                                        view->axes, view->bytes);
    if (shape && strides) {
        PyErr_Format(PyExc_ValueError, format, imported->name, shape, strides);
    }
    Py_XDECREF(shape);
    Py_XDECREF(strides);
}

static const char has_negative_shape[] =
    "%s has the negative shape %S: fix the library that exports it";
static const char has_no_address[] =
    "%s has shape %S and the address 0: fix the library that exports it";
static const char reaches_beyond_memory[] = "%s has shape %S and strides of %S bytes, which reach "
                                            "beyond the address space: fix the library "
                                            "that exports it";

/* Checks imported->view. Sets ValueError and returns false if its shape, address or strides are
 * impossible: a kernel would access memory outside the array. */
static bool check_view(const Imported *imported)
{
    const View *const view = &imported->view;
    bool is_negative = false, is_empty = false;
    for (int axis = 0; axis < view->axes; ++axis) {
        is_negative = is_negative || view->shape[axis] < 0;
        is_empty = is_empty || view->shape[axis] == 0;
    }
    const char *const problem = is_negative             ? has_negative_shape
                                : is_empty              ? NULL
                                : !view->data           ? has_no_address
                                : !fits_in_memory(view) ? reaches_beyond_memory
                                                        : NULL;
    if (problem && !tensor_refuse(imported->name, imported->argument)) {
        refuse_view(imported, problem);
    }
    return !problem;
}

/* Sets ValueError and returns false if the number of dimensions is impossible. */
static bool check_dimensions(const Imported *imported, int64_t dimensions, bool has_shape)
{
    if (dimensions >= 0 && dimensions <= VIEW_AXES && (dimensions == 0 || has_shape)) {
        return true;
    }
    PyErr_Format(PyExc_ValueError,
                 "%s has %lld dimensions%s, but an array has 0 to %d: fix the library that exports "
                 "it",
                 imported->name, (long long)dimensions, has_shape ? "" : " and no shape",
                 VIEW_AXES);
    return false;
}

/* Sets row-major strides. If a product overflows, check_view refuses the shape. */
static void set_contiguous(View *view)
{
    uint64_t bytes = (uint64_t)element_bytes(view->type);
    for (int axis = view->axes; axis-- > 0;) {
        view->bytes[axis] = (int64_t)bytes;
        bytes *= (uint64_t)(view->shape[axis] > 0 ? view->shape[axis] : 1);
    }
}

/* Whether the tensor is on the device that __dlpack_device__() returned, which run() computes on.
 * Sets ValueError if not. */
static bool is_on_announced_device(const Imported *imported, const DlTensor *tensor)
{
    if (!is_gpu(tensor->device.kind) ||
        (imported->device >= 0 && tensor->device.index != imported->device)) {
        PyErr_Format(PyExc_ValueError,
                     "%s.__dlpack_device__() names GPU %d, but the tensor of %s.__dlpack__() is on "
                     "device (%d, %d): fix the library that exports it",
                     imported->name, imported->device, imported->name, (int)tensor->device.kind,
                     (int)tensor->device.index);
        return false;
    }
    return true;
}

/* Converts a stride in elements to bytes; false on overflow. CuPy divides byte strides as unsigned
 * numbers, so that it exports a stride of -1 element as 2^62 - 1: that wraps to the right value. */
static bool bytes_of_stride(int64_t stride, ElementType type, int64_t *bytes)
{
    return !__builtin_mul_overflow(stride, element_bytes(type), bytes) ||
           (stride > 0 && *bytes < 0);
}

static bool take_tensor(Imported *imported, const DlTensor *tensor)
{
    if (!element_of_tensor(tensor, imported->name, &imported->view)) {
        return refuse_dtype(imported);
    }
    View *const view = &imported->view;
    if (!check_dimensions(imported, tensor->dimensions, tensor->shape != NULL)) {
        return false;
    }
    view->axes = tensor->dimensions;
    for (int axis = 0; axis < view->axes; ++axis) {
        view->shape[axis] = tensor->shape[axis];
    }
    set_contiguous(view);
    uintptr_t first = 0;
    bool fits = !tensor->data ||
                !__builtin_add_overflow((uintptr_t)tensor->data, tensor->byte_offset, &first);
    for (int axis = 0; tensor->strides && axis < view->axes; ++axis) {
        if (!bytes_of_stride(tensor->strides[axis], view->type, &view->bytes[axis])) {
            view->bytes[axis] = tensor->strides[axis]; /* for the message */
            fits = false;
        }
    }
    view->data = (char *)first;
    if (!fits) {
        refuse_view(imported, reaches_beyond_memory);
    }
    return fits && check_view(imported);
}

/* The tensor of the capsule; NULL with an exception set if it cannot be read. */
static const DlTensor *tensor_of_capsule(Imported *imported)
{
    if (PyCapsule_IsValid(imported->capsule, "dltensor_versioned")) {
        const DlVersioned *const exporter =
            PyCapsule_GetPointer(imported->capsule, "dltensor_versioned");
        if (exporter->version.major != 1) {
            PyErr_Format(PyExc_BufferError,
                         "%s uses version %u of DLPack, but run() needs version 1", imported->name,
                         exporter->version.major);
            return NULL;
        }
        imported->read_only = exporter->flags & DLPACK_READ_ONLY;
        return &exporter->tensor;
    }
    const DlManaged *const exporter = PyCapsule_GetPointer(imported->capsule, "dltensor");
    return exporter ? &exporter->tensor : NULL;
}

/* Calls __dlpack__ with the keywords of version 1.0 or, if that raises TypeError, the older
 * ones. */
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

/* The same with the array's GPU made the library's current one. `guards` names the module of the
 * library whose device(index) is a context manager for this. */
static PyObject *ask_on_its_device(const char *guards, const Imported *imported, void *stream)
{
    PyObject *const module = PyImport_ImportModule(guards);
    PyObject *const guard =
        module ? PyObject_CallMethod(module, "device", "i", imported->device) : NULL;
    PyObject *const entered = guard ? PyObject_CallMethod(guard, "__enter__", NULL) : NULL;
    PyObject *capsule = NULL;
    if (entered) {
        PyObject *type, *value, *traceback;
        capsule = ask_for_capsule(imported->argument, stream);
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

/* Reads a tuple of `count` ints. Sets TypeError or ValueError and returns false if `object` is not
 * one. */
static bool ints_of(PyObject *object, int count, int64_t *entries)
{
    if (!PyTuple_Check(object) || PyTuple_Size(object) != count) {
        PyErr_Format(PyExc_TypeError, "%R is not a tuple of %d ints", object, count);
        return false;
    }
    for (int index = 0; index < count; ++index) {
        entries[index] = PyLong_AsLongLong(PyTuple_GetItem(object, index));
        if (PyErr_Occurred()) {
            if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
                PyErr_Format(PyExc_ValueError, "%R has a number that does not fit in 64 bits",
                             object);
            }
            return false;
        }
    }
    return true;
}

/* A new reference to the entry, or to None if it is missing; NULL on failure. */
static PyObject *entry_of(PyObject *interface, const char *key)
{
    PyObject *const value = PyMapping_GetItemString(interface, key);
    if (!value && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return value;
}

static bool take_shape(Imported *imported, PyObject *shape, PyObject *strides, void *address)
{
    View *const view = &imported->view;
    const Py_ssize_t dimensions = PyTuple_Check(shape) ? PyTuple_Size(shape) : 0;
    if (!check_dimensions(imported, dimensions, true)) {
        return false;
    }
    view->axes = (int)dimensions;
    view->data = address;
    if (!ints_of(shape, view->axes, view->shape)) {
        return false;
    }
    set_contiguous(view);
    return (strides == Py_None || ints_of(strides, view->axes, view->bytes)) &&
           check_view(imported);
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

static bool import_by_interface(Imported *imported, StreamScope *scope, PyObject *module)
{
    PyObject *const interface = PyObject_GetAttrString(imported->argument, INTERFACE);
    PyObject *const shape = interface ? PyMapping_GetItemString(interface, "shape") : NULL;
    PyObject *const typestr = shape ? PyMapping_GetItemString(interface, "typestr") : NULL;
    PyObject *const strides = typestr ? entry_of(interface, "strides") : NULL;
    PyObject *const mask = strides ? entry_of(interface, "mask") : NULL;
    PyObject *const stream = mask ? entry_of(interface, "stream") : NULL;
    void *address = NULL;
    bool done =
        stream && address_of(interface, imported->name, &address, &imported->read_only) &&
        (element_of_interface(typestr, imported->name, imported->argument, &imported->view) ||
         refuse_dtype(imported)) &&
        take_shape(imported, shape, strides, address);
    if (done && mask != Py_None) {
        PyErr_Format(PyExc_TypeError,
                     "%s has a mask, which run() would ignore: pass an array without a mask",
                     imported->name);
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

/* DLPack before version 1.0 has no read-only flag; the CUDA array interface, if present, has
 * one. */
static bool check_read_only(Imported *imported)
{
    PyObject *const interface = attribute_of(imported->argument, INTERFACE);
    void *address;
    bool read_only = false;
    const bool done =
        interface ? address_of(interface, imported->name, &address, &read_only) : !PyErr_Occurred();
    Py_XDECREF(interface);
    imported->read_only = imported->read_only || read_only;
    return done;
}

static bool import_by_dlpack(Imported *imported, StreamScope *scope)
{
    const char *const guards = library_of(imported->argument)->guards;
    imported->capsule = ask_for_capsule(imported->argument, scope->stream);
    if (!imported->capsule && guards && PyErr_ExceptionMatches(PyExc_BufferError)) {
        PyErr_Clear();
        imported->capsule = ask_on_its_device(guards, imported, scope->stream);
    }
    const DlTensor *const tensor = imported->capsule ? tensor_of_capsule(imported) : NULL;
    return tensor && is_on_announced_device(imported, tensor) && take_tensor(imported, tensor) &&
           (strcmp(imported->name, "out") != 0 || check_read_only(imported));
}

bool interop_await_library(const Imported *imported, StreamScope *scope, PyObject *module)
{
    void *current;
    if (!interop_current_stream(imported, &current)) {
        return false;
    }
    const Status status = device_kinds[DEVICE_CUDA]->arrays->wait_for_stream(scope, current);
    return succeeded(module, &status);
}

/* Views the array; the scope's stream waits for the library's current one. */
static bool import_by_exchange(Imported *imported, StreamScope *scope, PyObject *module)
{
    DlTensor tensor;
    if (imported->exchange->view(imported->argument, &tensor) != 0 ||
        !is_on_announced_device(imported, &tensor) || !take_tensor(imported, &tensor)) {
        return false;
    }
    if (strcmp(imported->name, "out") == 0) {
        const int read_only = dlpack_exchange_is_read_only(imported->exchange, imported->argument);
        imported->read_only = read_only != 0;
        if (read_only < 0) {
            return false;
        }
    }
    return imported->ordered || interop_await_library(imported, scope, module);
}

/* The exchange API of an array in host memory, and its view; NULL for other arguments. */
static const DlExchange *host_exchange(PyObject *module, PyObject *argument, DlTensor *tensor)
{
    const DlExchange *const exchange =
        PyArray_Check(argument) ? NULL : dlpack_exchange_of(module, argument);
    const bool is_on_host = exchange && dlpack_exchange_view(exchange, argument, tensor) &&
                            is_host(tensor->device.kind);
    return is_on_host ? exchange : NULL;
}

static bool take_host_tensor(Imported *imported, const DlTensor *tensor)
{
    return !tensor_is_refused(imported->name, imported->argument) && take_tensor(imported, tensor);
}

bool interop_host_operand(PyObject *module, PyObject *argument, const char *name, View *view)
{
    DlTensor tensor;
    if (!host_exchange(module, argument, &tensor)) {
        return operand_of_run(argument, name, view);
    }
    Imported imported = {.name = name, .argument = argument};
    const bool done = take_host_tensor(&imported, &tensor);
    *view = imported.view;
    return done;
}

bool interop_import(Imported *imported, StreamScope *scope, PyObject *module)
{
    const Device *const cuda = device_kinds[DEVICE_CUDA];
    if (imported->block) {
        const bool writes = strcmp(imported->name, "out") == 0;
        Status status;
        /* This may wait for the device: see run_on_gpu. */
        Py_BEGIN_ALLOW_THREADS;
        status = cuda->arrays->use(scope, imported->block, writes);
        Py_END_ALLOW_THREADS;
        device_array_view(imported->argument, &imported->view);
        return succeeded(module, &status);
    }
    if (imported->exchange) {
        return import_by_exchange(imported, scope, module);
    }
    const int by_dlpack = has_attribute(imported->argument, "__dlpack__");
    if (by_dlpack < 0) {
        return false;
    }
    /* close restores the current device if the library changes it. */
    const Status status = cuda->arrays->open(scope->device);
    if (!succeeded(module, &status)) {
        return false;
    }
    const bool done = by_dlpack ? import_by_dlpack(imported, scope)
                                : import_by_interface(imported, scope, module);
    cuda->arrays->close();
    return done;
}

/* Releases a capsule's tensor as a consumer must. The capsule itself may have no destructor. */
static void consume(PyObject *capsule)
{
    if (capsule && PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DlVersioned *const exporter = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        if (exporter->deleter) {
            exporter->deleter(exporter);
        }
    } else if (capsule && PyCapsule_IsValid(capsule, "dltensor")) {
        DlManaged *const exporter = PyCapsule_GetPointer(capsule, "dltensor");
        PyCapsule_SetName(capsule, "used_dltensor");
        if (exporter->deleter) {
            exporter->deleter(exporter);
        }
    }
}

void interop_release(Imported *imported)
{
    /* The library may run Python code, which must not start with an exception set. */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    consume(imported->capsule);
    Py_CLEAR(imported->capsule);
    PyErr_Restore(type, value, traceback);
}

/* ------------------------------------------------------------------ streams */

/* The attribute with the handle in releases of PyTorch and CuPy without __cuda_stream__. */
static const char *const handle_attributes[] = {"cuda_stream", "ptr"};

/* A new reference to the stream's handle, usually an int. NULL with an exception set if the
 * argument is not a stream. */
static PyObject *handle_of(PyObject *argument)
{
    if (PyLong_CheckExact(argument)) {
        return Py_NewRef(argument);
    }
    PyObject *const method = attribute_of(argument, "__cuda_stream__");
    if (method) {
        int64_t version_and_handle[2];
        PyObject *const answer = PyObject_CallNoArgs(method);
        const bool done = answer && ints_of(answer, 2, version_and_handle);
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
    const int waits = has_attribute(
        argument, "wait_event"); /* not on CuPy's events and pointers, which have ptr */
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
                     "__cuda_stream__, or an int, not %U: pass the stream's handle as an int",
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
                     "stream is %lld, which is not a " GPU_API
                     " stream: pass None or a stream's handle",
                     handle);
    }
    /* 0 is the default stream, as in CuPy and PyTorch; 1 is the handle that names it explicitly. */
    *stream = (void *)(uintptr_t)(handle ? handle : 1);
    return !PyErr_Occurred();
}
