#include "custom.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "../../base/threads.h"
#include "../../runtime/custom_gpu.h"
#include "attributes.h"
#include "describing.h"
#include "raising.h"

static const char capsule_name[] = "sgemm_kernels kernel";

const OpenKernel *custom_kernel_of(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, capsule_name)) {
        PyErr_SetString(PyExc_TypeError, "this capsule is not from _open_kernel()");
        return NULL;
    }
    return PyCapsule_GetPointer(capsule, capsule_name);
}

PyObject *custom_kernel_run(PyObject *variant, PyObject *args, PyObject *keywords)
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

/* An open library. The kernels of one file share it, since dlopen returns the same handle for each.
 * The GIL guards these. */
struct Library {
    void *handle;
    const CustomKernel *code;
    CustomGpu *gpu; /* NULL in a build without CUDA and for libraries without use_gpu */
    int kernels;    /* open ones */
    struct Library *next;
};
static struct Library *libraries;

static void close_library(struct Library *library)
{
    if (--library->kernels > 0) {
        return;
    }
    struct Library **link = &libraries;
    while (*link != library) {
        link = &(*link)->next;
    }
    *link = library->next;
    /* Nothing names the library any more, so others may run. Unloading may wait for the GPU. */
    Py_BEGIN_ALLOW_THREADS;
#if defined(SGEMM_CUDA) && !defined(SGEMM_HIP)
    if (library->gpu) {
        custom_gpu_close(library->gpu, library->code, library->handle);
    } else
#endif
    {
        dlclose(library->handle);
    }
    Py_END_ALLOW_THREADS;
    free(library);
}

static Status check_library(void *handle, const char *path, const CustomKernel **code)
{
    CustomKernelGetter *getter;
    *(void **)&getter = dlsym(handle, "sgemm_custom_kernel");
    *code = getter ? getter() : NULL;
    return *code && (*code)->version == CUSTOM_KERNEL_VERSION
               ? status_ok()
               : status_error(STATUS_DEVICE,
                              "%s was not built by this version of sgemm_kernels: compile the "
                              "kernel again",
                              path);
}

/* Each success takes one close_library. */
static Status open_library(const char *path, struct Library **opened)
{
    void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        return status_error(STATUS_DEVICE, "cannot open the compiled kernel: %s", dlerror());
    }
    for (struct Library *each = libraries; each; each = each->next) {
        if (each->handle == handle) {
            dlclose(handle); /* the library keeps its first reference */
            ++each->kernels;
            *opened = each;
            return status_ok();
        }
    }
    const CustomKernel *code;
    Status status = check_library(handle, path, &code);
    struct Library *const library = calloc(1, sizeof *library);
    CustomGpu *gpu = NULL;
#if defined(SGEMM_CUDA) && !defined(SGEMM_HIP)
    const bool uses_gpu = status.code == STATUS_OK && code->use_gpu;
    gpu = uses_gpu ? custom_gpu_new() : NULL;
    if (uses_gpu && !gpu) {
        status = status_error(STATUS_OUT_OF_MEMORY, "no memory for a kernel");
    }
#endif
    if (status.code == STATUS_OK && !library) {
        status = status_error(STATUS_OUT_OF_MEMORY, "no memory for a kernel");
    }
    if (status.code != STATUS_OK) {
        free(gpu);
        free(library);
        dlclose(handle);
        return status;
    }
    *library = (struct Library){handle, code, gpu, 1, libraries};
    libraries = library;
    if (gpu) {
        code->use_gpu(gpu);
    }
    if (code->use_cores) {
        code->use_cores(usable_cores(), 0);
    }
    *opened = library;
    return status_ok();
}

static void delete_kernel(OpenKernel *kernel)
{
    free((char *)kernel->variant.name);
    free((char *)kernel->variant.file);
    close_library(kernel->library);
    free(kernel);
}

static void delete_capsule(PyObject *capsule)
{
    delete_kernel(PyCapsule_GetPointer(capsule, capsule_name));
}

const char open_kernel_doc[] = PyDoc_STR(
    "_open_kernel(library, name, file) -> (capsule, dict, symbol)\n"
    "\n"
    "Opens the shared library of a custom kernel. The capsule can be passed instead of a\n"
    "variant's name; the dict is like those of _variants(); the symbol is the kernel's name in\n"
    "its source. The library is closed with its last capsule: keep one while its work may be\n"
    "queued on a GPU.");

PyObject *open_kernel(PyObject *module, PyObject *args)
{
    PyObject *path; /* bytes: a path need not be valid UTF-8 */
    const char *name, *file;
    if (!PyArg_ParseTuple(args, "O&ss", PyUnicode_FSConverter, &path, &name, &file)) {
        return NULL;
    }
    struct Library *library = NULL;
    const Status status = open_library(PyBytes_AsString(path), &library);
    Py_DECREF(path);
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    OpenKernel *const kernel = calloc(1, sizeof *kernel);
    if (!kernel) {
        close_library(library);
        return PyErr_NoMemory();
    }
    kernel->library = library;
    kernel->code = library->code;
    kernel->variant = *library->code->variant;
    kernel->variant.name = strdup(name);
    kernel->variant.file = strdup(file);
    if (library->gpu && library->code->launch_on_gpu) {
        kernel->variant.launch[DEVICE_CUDA] = library->code->launch_on_gpu;
    }
    PyObject *const capsule = kernel->variant.name && kernel->variant.file
                                  ? PyCapsule_New(kernel, capsule_name, delete_capsule)
                                  : PyErr_NoMemory();
    if (!capsule) {
        delete_kernel(kernel);
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
    const OpenKernel *const kernel = custom_kernel_of(capsule);
    Status status = status_error(STATUS_UNSUPPORTED, "this kernel runs only on the CPU");
#if defined(SGEMM_CUDA) && !defined(SGEMM_HIP)
    if (kernel && kernel->library->gpu) {
        Py_BEGIN_ALLOW_THREADS;
        status =
            custom_gpu_add(kernel->library->gpu, capability, code.buf, (size_t)code.len, symbol);
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
