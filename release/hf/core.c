/* The module _core of a package in Hugging Face's format: the functions that
 * _torch_operators.py calls. It leaves out csrc/frontends/python, which needs NumPy. */
#include <Python.h>

#include <stdio.h>

#include "../../csrc/frontends/torch/operators.h"

/* The package's name. PyTorch's namespace of that name holds the operators, so that several builds
 * can be loaded beside each other and beside sgemm_kernels. */
static char package[128];

static int32_t (*implement_in)(const char *space, const char *dispatch_key, const char *file,
                               uint32_t line, TorchHandle *library);

static int32_t implement(const char *Py_UNUSED(space), const char *dispatch_key, const char *file,
                         uint32_t line, TorchHandle *library)
{
    return implement_in(package, dispatch_key, file, line, library);
}

static bool refuse_library(char *message)
{
    snprintf(message, TORCH_MESSAGE_BYTES,
             "this package does not load cuBLAS: call PyTorch's own operator, which uses it");
    return false;
}

static PyObject *none_or_raise(Status status)
{
    if (status.code != STATUS_OK) {
        PyErr_SetString(PyExc_RuntimeError, status.message);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *torch_open(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return none_or_raise(torch_abi_open());
}

static PyObject *torch_register(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    implement_in = torch_abi.implement;
    torch_abi.implement = implement;
    torch_open_library = refuse_library;
    return none_or_raise(torch_add_operators());
}

/* Reads the package's name from the module's, "package._core". */
static int execute(PyObject *module)
{
    PyObject *const name = PyModule_GetNameObject(module);
    PyObject *const parts = name ? PyObject_CallMethod(name, "rpartition", "s", ".") : NULL;
    PyObject *const text = parts ? PyUnicode_AsUTF8String(PyTuple_GetItem(parts, 0)) : NULL;
    const char *const read = text ? PyBytes_AsString(text) : NULL;
    int error = read ? PyObject_SetAttrString(module, "Error", PyExc_RuntimeError) : -1;
    if (read && (size_t)snprintf(package, sizeof package, "%s", read) >= sizeof package) {
        PyErr_Format(PyExc_ImportError, "the package's name has more than %d bytes: %s",
                     (int)sizeof package - 1, read);
        error = -1;
    }
    Py_XDECREF(text);
    Py_XDECREF(parts);
    Py_XDECREF(name);
    return error;
}

static PyMethodDef methods[] = {
    {"_torch_open", torch_open, METH_NOARGS, NULL},
    {"_torch_register", torch_register, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_core", .m_doc = "The C functions behind the operators.",
    .m_methods = methods,  .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
