#include "result.h"

#include "../../runtime/pinned.h"
#include "choosing.h"

static const char *const capsule_name = "sgemm_kernels.pinned";

/* Runs when an array is freed, perhaps at exit or in a forked child, so it must not call a
 * device. */
static void release(PyObject *capsule)
{
    pinned_free(PyCapsule_GetPointer(capsule, capsule_name));
}

/* The size of an array in bytes; 0 if it is empty, or if the size overflows. */
static size_t bytes_for(int dimensions, const npy_intp *shape)
{
    size_t bytes = sizeof(float);
    for (int axis = 0; axis < dimensions; ++axis) {
        if (shape[axis] <= 0 || (size_t)shape[axis] > PTRDIFF_MAX / bytes) {
            return 0;
        }
        bytes *= (size_t)shape[axis];
    }
    return bytes;
}

PyObject *result_array(int dimensions, const npy_intp *shape, const Device *device, int index)
{
    PinnedBlock *block = NULL;
    const size_t bytes = bytes_for(dimensions, shape);
    if (bytes && device && device->pin) {
        PyThreadState *const thread = PyEval_SaveThread();
        block = pinned_alloc(device, index, bytes);
        PyEval_RestoreThread(thread);
    }
    if (!block) {
        return PyArray_SimpleNew(dimensions, shape, NPY_FLOAT);
    }
    PyObject *const owner = PyCapsule_New(block, capsule_name, release);
    if (!owner) {
        pinned_free(block);
        return NULL;
    }
    PyObject *const array = PyArray_New(&PyArray_Type, dimensions, shape, NPY_FLOAT, NULL,
                                        pinned_memory(block), 0, NPY_ARRAY_CARRAY, NULL);
    if (!array) {
        Py_DECREF(owner);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)array, owner) <
        0) { /* steals the owner even on failure */
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

const char empty_doc[] = PyDoc_STR(
    "empty(shape)\n--\n\n"
    "Return a new, uninitialised, C-contiguous float32 array in pinned memory. run() copies its\n"
    "operands from such arrays, and results to them as out, without staging.\n"
    "\n"
    "The memory comes from the pool of results: see memory(). Without a usable GPU, or beyond the\n"
    "pool's limit, it is ordinary memory.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "shape : int or tuple of int\n"
    "\n"
    "Returns\n"
    "-------\n"
    "numpy.ndarray of float32\n"
    "    Its elements are undefined.");

PyObject *result_empty(PyObject *Py_UNUSED(module), PyObject *argument)
{
    PyArray_Dims shape = {NULL, 0};
    if (!PyArray_IntpConverter(argument, &shape)) {
        return NULL;
    }
    Status why;
    const int index = first_usable_gpu(&why);
    PyObject *const array =
        result_array(shape.len, shape.ptr, index >= 0 ? device_kinds[DEVICE_CUDA] : NULL, index);
    PyDimMem_FREE(shape.ptr);
    return array;
}

PyObject *result_memory(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    const PinnedAccount account = pinned_account();
    return Py_BuildValue("LLL", (long long)account.live, (long long)account.idle,
                         (long long)account.limit);
}

PyObject *result_set_limit(PyObject *Py_UNUSED(module), PyObject *limit)
{
    const long long bytes = PyLong_AsLongLong(limit);
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyThreadState *const thread = PyEval_SaveThread();
    pinned_set_limit(bytes);
    PyEval_RestoreThread(thread);
    return Py_NewRef(Py_None);
}

PyObject *result_empty_memory(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    const Device *const gpus = device_kinds[DEVICE_CUDA];
    PyThreadState *const thread = PyEval_SaveThread();
    pinned_empty();
    if (gpus) {
        gpus->give_idle_back();
    }
    PyEval_RestoreThread(thread);
    return Py_NewRef(Py_None);
}
