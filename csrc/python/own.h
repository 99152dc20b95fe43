/* Custom kernels: libraries that are compiled at run time. */
#ifndef SGEMM_PYTHON_OWN_H
#define SGEMM_PYTHON_OWN_H

#include "python.h"

#include "../core/own_kernel.h"

struct Library;

/* Held by the capsule that a call takes in place of a variant's name. */
typedef struct {
    Variant variant; /* the library's, with the Python object's name and file */
    const OwnKernel *code;
    struct Library *library; /* closed with its last OpenKernel */
} OpenKernel;

/* The capsule's kernel; NULL with TypeError set if the capsule has none. */
const OpenKernel *own_kernel_of(PyObject *capsule);

/* Calls the method __sgemm_run__ of an object that was passed instead of a variant's name, with
 * run's other arguments. NULL without an exception for objects without that method. */
PyObject *own_kernel_run(PyObject *variant, PyObject *args, PyObject *keywords);

/* _open_kernel(library, name, file) -> (capsule, dict, symbol); _add_gpu_code(capsule, capability,
 * code, symbol). Methods of the module. */
extern const char open_kernel_doc[], add_gpu_code_doc[];
PyObject *open_kernel(PyObject *module, PyObject *args);
PyObject *add_gpu_code(PyObject *module, PyObject *args);

#endif
