#include "own.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "../core/own_gpu.h"
#include "../core/threads.h"
#include "attributes.h"
#include "describing.h"
#include "raising.h"

static const char capsule_name[] = "sgemm_kernels kernel";

const OpenKernel *own_kernel_of(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, capsule_name)) {
        PyErr_SetString(PyExc_TypeError, "this capsule is not from _open_kernel()");
        return NULL;
    }
    return PyCapsule_GetPointer(capsule, capsule_name);
}

PyObject *own_kernel_run(PyObject *variant, PyObject *args, PyObject *keywords)
{
    if (PyUnicode_CheckExact(variant) || PyCapsule_CheckExact(variant)) {
        return NULL;
    }
    PyObject *const method = attribute_of(variant, "__sgemm_run__");
    if (!method) {
        return NULL;
    }
    PyObject *const others = PyTuple_GetSlice(args, 1, PyTuple_Size(args));
    PyObject *const named = keywords ? PyDict_Copy(keywords) : PyDict_New();
    PyObject *result = NULL;
    if (others && named) {
        if (PyDict_GetItemString(named, "variant")) {
            PyDict_DelItemString(named, "variant");
        }
        result = PyObject_Call(method, others, named);
    }
    Py_XDECREF(named);
    Py_XDECREF(others);
    Py_DECREF(method);
    return result;
}

static void delete_kernel(PyObject *capsule)
{
    OpenKernel *const kernel = PyCapsule_GetPointer(capsule, capsule_name);
    free((char *)kernel->variant.name);
    free((char *)kernel->variant.file);
    free(kernel);
}

static Status open_library(const char *path, const OwnKernel **code)
{
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return status_error(STATUS_DEVICE, "cannot open the compiled kernel: %s", dlerror());
    }
    OwnKernelGetter *getter;
    *(void **)&getter = dlsym(library, "sgemm_own_kernel");
    *code = getter ? getter() : NULL;
    return *code && (*code)->version == OWN_KERNEL_VERSION
               ? status_ok()
               : status_error(STATUS_DEVICE,
                              "%s was not built by this version of sgemm_kernels: compile the "
                              "kernel again",
                              path);
}

const char open_kernel_doc[] = PyDoc_STR(
    "_open_kernel(library, name, file) -> (capsule, dict, symbol)\n"
    "\n"
    "Opens the shared library of a custom kernel. The capsule can be passed instead of a\n"
    "variant's name; the dict is like those of _variants(); the symbol is the kernel's name in\n"
    "its source.");

PyObject *open_kernel(PyObject *module, PyObject *args)
{
    PyObject *path; /* bytes: a path need not be valid UTF-8 */
    const char *name, *file;
    if (!PyArg_ParseTuple(args, "O&ss", PyUnicode_FSConverter, &path, &name, &file)) {
        return NULL;
    }
    const OwnKernel *code = NULL;
    const Status status = open_library(PyBytes_AsString(path), &code);
    Py_DECREF(path);
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    if (code->use_cores) {
        code->use_cores(usable_cores(), 0);
    }
    OpenKernel *const kernel = calloc(1, sizeof *kernel);
    if (!kernel) {
        return PyErr_NoMemory();
    }
    kernel->code = code;
    kernel->variant = *code->variant;
    kernel->variant.name = strdup(name);
    kernel->variant.file = strdup(file);
#if defined(SGEMM_CUDA) && !defined(SGEMM_HIP)
    if (code->use_gpu) {
        kernel->gpu = own_gpu_new();
        code->use_gpu(kernel->gpu);
        if (kernel->gpu && code->launch_on_gpu) {
            kernel->variant.launch[DEVICE_CUDA] = code->launch_on_gpu;
        }
    }
#endif
    PyObject *const capsule = kernel->variant.name && kernel->variant.file
                                  ? PyCapsule_New(kernel, capsule_name, delete_kernel)
                                  : PyErr_NoMemory();
    if (!capsule) {
        free((char *)kernel->variant.name);
        free((char *)kernel->variant.file);
        free(kernel);
        return NULL;
    }
    return Py_BuildValue("(NNz)", capsule, describe_variant(&kernel->variant),
                         kernel->variant.spec.symbol);
}

const char add_gpu_code_doc[] =
    PyDoc_STR("_add_gpu_code(capsule, capability, code, symbol)\n\n"
              "Adds machine code for one compute capability, such as 90, to a kernel of\n"
              "_open_kernel. `symbol` is the kernel's name in that code.");

PyObject *add_gpu_code(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    int capability;
    Py_buffer code;
    const char *symbol;
    if (!PyArg_ParseTuple(args, "Oiy*s", &capsule, &capability, &code, &symbol)) {
        return NULL;
    }
    const OpenKernel *const kernel = own_kernel_of(capsule);
    Status status = status_error(STATUS_UNSUPPORTED, "this kernel runs only on the CPU");
#if defined(SGEMM_CUDA) && !defined(SGEMM_HIP)
    if (kernel && kernel->gpu) {
        Py_BEGIN_ALLOW_THREADS;
        status = own_gpu_add(kernel->gpu, capability, code.buf, (size_t)code.len, symbol);
        Py_END_ALLOW_THREADS;
    }
#endif
    PyBuffer_Release(&code);
    if (!kernel) {
        return NULL;
    }
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    return Py_NewRef(Py_None);
}
