#include "choosing.h"

#include <stdlib.h>
#include <string.h>

#include "../../runtime/catalog.h"
#include "custom.h"
#include "raising.h"
#include "state.h"

static void refuse_variant(const char *name)
{
    PyObject *const names = PyList_New(0);
    PyObject *near = NULL, *difflib = NULL, *list = NULL, *comma = NULL;
    for (const Variant *const *variant = catalog; names && *variant; ++variant) {
        PyObject *const text = PyUnicode_FromString((*variant)->name);
        if (!text || PyList_Append(names, text) < 0) {
            Py_XDECREF(text);
            goto done;
        }
        Py_DECREF(text);
    }
    difflib = PyImport_ImportModule("difflib");
    near =
        difflib ? PyObject_CallMethod(difflib, "get_close_matches", "sOi", name, names, 1) : NULL;
    comma = PyUnicode_FromString(", ");
    list = near && comma ? PyUnicode_Join(comma, names) : NULL;
    if (list) {
        if (PyList_Size(near) > 0) {
            PyErr_Format(PyExc_ValueError,
                         "there is no variant '%s': did you mean '%U'? The variants are %U", name,
                         PyList_GetItem(near, 0), list);
        } else {
            PyErr_Format(PyExc_ValueError, "there is no variant '%s': the variants are %U", name,
                         list);
        }
    }
done:
    Py_XDECREF(list);
    Py_XDECREF(comma);
    Py_XDECREF(near);
    Py_XDECREF(difflib);
    Py_XDECREF(names);
}

const char *text_of(PyObject *argument, const char *name, const char *example)
{
    if (!PyUnicode_Check(argument)) {
        PyObject *const type = PyType_GetName(Py_TYPE(argument));
        if (type) {
            PyErr_Format(PyExc_TypeError, "%s must be a str, not %U: pass a name, such as %s", name,
                         type, example);
            Py_DECREF(type);
        }
        return NULL;
    }
    Py_ssize_t length;
    const char *const text = PyUnicode_AsUTF8AndSize(argument, &length);
    if (!text || strlen(text) != (size_t)length) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is %A, which is not a valid name: pass %s, for example",
                     name, argument, example);
        return NULL;
    }
    return text;
}

const Variant *choose_variant(PyObject *argument, const Variant *(*find)(const char *name))
{
    if (PyCapsule_CheckExact(argument)) {
        const OpenKernel *const own = custom_kernel_of(argument);
        return own ? &own->variant : NULL;
    }
    const char *const name = text_of(argument, "variant", "'vec4'");
    const Variant *const variant = name ? find(name) : NULL;
    if (name && !variant) {
        refuse_variant(name);
    }
    return variant;
}

static bool warn_once_of_cpu(const Status *why)
{
    static bool warned; /* guarded by the GIL; stays false if the warning is raised as an error */
    if (!warned) {
        warned = PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                                  "no usable GPU (%s): running on the CPU emulator, which gives "
                                  "correct results, but its timing does not predict a GPU's. Pass "
                                  "device='cpu' to avoid this warning",
                                  why->message) == 0;
    }
    return warned;
}

enum { ALL_GPUS = -1 }; /* the index for 'cuda:all' */

bool choose_gpu(PyObject *module, const char *index_text, int *index)
{
    const State *const state = state_of(module);
    int count;
    Status why = cuda_count(&count);
    if (*index_text == '\0') {
        *index = why.code == STATUS_OK ? first_usable_gpu(&why) : -1;
    } else {
        const long wanted = strtol(index_text + 1, NULL, 10);
        *index = wanted < count ? (int)wanted : -1;
        if (*index >= 0) {
            why = device_kinds[DEVICE_CUDA]->usable(*index);
        } else if (count > 0) {
            PyErr_Format(state->DeviceError,
                         "there is no device '" GPU_KIND
                         "%s': pass an index up to %d (visible GPUs: %d)",
                         index_text, count - 1, count);
            return false;
        }
    }
    if (*index < 0 || why.code != STATUS_OK) {
        PyErr_Format(state->DeviceError, "device '" GPU_KIND "%s' cannot be used: %s", index_text,
                     why.message);
        return false;
    }
    return true;
}

/* Lists the GPUs that this build can use, at most MOST_GPUS, and returns their number. If it is 0,
 * *why gives the reason. */
static int usable_gpus(int gpus[MOST_GPUS], Status *why)
{
    int count, usable = 0;
    *why = cuda_count(&count);
    for (int index = 0; index < count && usable < MOST_GPUS; ++index) {
        *why = device_kinds[DEVICE_CUDA]->usable(index);
        if (why->code == STATUS_OK) {
            gpus[usable++] = index;
        }
    }
    return usable;
}

static bool is_index(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits >= 1 && digits <= 6 && text[digits] == '\0';
}

static bool choose_device(PyObject *module, PyObject *argument, DeviceKind *kind, int *index)
{
    const State *const state = state_of(module);
    if (argument == Py_None) {
        Status why;
        *index = first_usable_gpu(&why);
        if (*index >= 0) {
            *kind = DEVICE_CUDA;
            return true;
        }
        if (why.code == STATUS_DEVICE) {
            PyErr_SetString(state->DeviceError, why.message);
            return false;
        }
        *kind = DEVICE_CPU;
        *index = 0;
        return warn_once_of_cpu(&why);
    }
    const char *const name = text_of(argument, "device", "'cpu' or '" GPU_KIND "'");
    if (!name) {
        return false;
    }
    if (strcmp(name, "cpu") == 0) {
        *kind = DEVICE_CPU;
        *index = 0;
        return true;
    }
    *kind = DEVICE_CUDA;
    if (strcmp(name, GPU_KIND ":all") == 0) {
        *index = ALL_GPUS;
        return true;
    }
    const size_t length = strlen(GPU_KIND);
    const char *const after = strncmp(name, GPU_KIND, length) == 0 ? name + length : NULL;
    if (after && (*after == '\0' || (*after == ':' && is_index(after + 1)))) {
        return choose_gpu(module, after, index);
    }
    PyErr_Format(PyExc_ValueError,
                 "there is no device called '%s': pass 'cpu', '" GPU_KIND "', '" GPU_KIND
                 ":<index>', '" GPU_KIND ":all' or None",
                 name);
    return false;
}

/* Opens the library of the reference variant on its first use. */
static bool open_cublas(void)
{
#ifdef SGEMM_CUDA
    if (!cublas_is_open()) {
        PyObject *const loader = PyImport_ImportModule("sgemm_kernels._cublas");
        PyObject *const result = loader ? PyObject_CallMethod(loader, "load", NULL) : NULL;
        Py_XDECREF(loader);
        Py_XDECREF(result);
        return result != NULL;
    }
#endif
    return true;
}

PyObject *open_cublas_at(PyObject *module, PyObject *argument)
{
    const char *const path = text_of(argument, "path", "'/usr/lib/libcublas.so'");
    if (!path) {
        return NULL;
    }
#ifdef SGEMM_CUDA
    const Status status = cublas_open(path);
#else
    const Status status = status_error(STATUS_UNSUPPORTED,
                                       "this build has no GPU support and cannot use " GPU_LIBRARY);
#endif
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    return Py_NewRef(Py_None);
}

bool can_run(PyObject *module, const Variant *variant, DeviceKind kind, int index)
{
    const Status status = device_can_run(variant, kind, index);
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return false;
    }
    return kind == DEVICE_CPU || !variant_is_library(variant) || open_cublas();
}

/* Whether all `count` devices can run the variant; if not, sets an exception. */
static bool can_all_run(PyObject *module, const Variant *variant, DeviceKind kind,
                        const int *devices, int count)
{
    int able = 0;
    while (able < count && can_run(module, variant, kind, devices[able])) {
        ++able;
    }
    return able == count;
}

int choose_devices(PyObject *module, const Variant *variant, PyObject *argument, DeviceKind *kind,
                   int devices[MOST_GPUS])
{
    if (!choose_device(module, argument, kind, devices)) {
        return 0;
    }
    Status why = status_ok();
    const int count = *devices == ALL_GPUS ? usable_gpus(devices, &why) : 1;
    if (count == 0) {
        const State *const state = state_of(module);
        PyErr_Format(state->DeviceError, "device '" GPU_KIND ":all' cannot be used: %s",
                     why.message);
    }
    return can_all_run(module, variant, *kind, devices, count) ? count : 0;
}
