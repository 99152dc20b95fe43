/* Custom kernels, which are compiled at run time. */
#ifndef SGEMM_PYTHON_CUSTOM_H
#define SGEMM_PYTHON_CUSTOM_H

#include "python.h"

#include "../../base/custom_kernel.h"

struct Library;

/* Held by the capsule that a call takes in place of a variant's name. */
typedef struct {
    Variant variant; /* the library's, with the Python object's name and file */
    const CustomKernel *code;
    struct Library *library; /* closed with its last OpenKernel */
} OpenKernel;

/* The content of the capsule; NULL with TypeError set if it is another capsule. */
const OpenKernel *custom_kernel_of(PyObject *capsule);

/* If `variant` has a method __sgemm_run__, calls it with the other arguments of run. NULL without
 * an exception for other objects. */
PyObject *custom_kernel_run(PyObject *variant, PyObject *args, PyObject *keywords);

/* Module methods _open_kernel(library, name, file) -> (capsule, dict, symbol) and
 * _add_gpu_code(capsule, capability, code, symbol). */
extern const char open_kernel_doc[], add_gpu_code_doc[];
PyObject *open_kernel(PyObject *module, PyObject *args);
PyObject *add_gpu_code(PyObject *module, PyObject *args);

#endif
