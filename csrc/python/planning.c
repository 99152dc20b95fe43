#include "planning.h"

#include "../engine/plan.h"

/* In the order of PlanConstants. */
#define CONSTANT(name, value) #name,
#define TILE(BM, BN, BK, ...) "slots_" #BM "x" #BN "x" #BK,
static const char *const names[] = {PLAN_CONSTANTS(CONSTANT) TILES(TILE)};
#undef TILE
#undef CONSTANT
enum { COUNT = sizeof names / sizeof *names };

const char plan_constants_doc[] =
    "What plans are estimated with on GPUs of a model: a dict, from name to value.";

PyObject *plan_constants_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *model;
    if (!PyArg_ParseTuple(args, "s", &model)) {
        return NULL;
    }
    PyObject *const found = PyDict_New();
    const double *const values = (const double *)plan_constants(model);
    for (int i = 0; found && i < COUNT; ++i) {
        PyObject *const value = PyFloat_FromDouble(values[i]);
        if (!value || PyDict_SetItemString(found, names[i], value) < 0) {
            Py_XDECREF(value);
            Py_DECREF(found);
            return NULL;
        }
        Py_DECREF(value);
    }
    return found;
}

const char keep_plan_constants_doc[] =
    "Has plans on GPUs of a model estimated with others, from now on. To be called before\n"
    "the first product there.";

PyObject *keep_plan_constants(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *model;
    PyObject *given;
    PlanConstants constants;
    double *const values = (double *)&constants;
    if (!PyArg_ParseTuple(args, "sO!", &model, &PyDict_Type, &given)) {
        return NULL;
    }
    for (int i = 0; i < COUNT; ++i) {
        PyObject *const value = PyDict_GetItemString(given, names[i]);
        values[i] = value ? PyFloat_AsDouble(value) : -1;
        if (PyErr_Occurred()) {
            return NULL;
        }
        if (!(values[i] > 0 && values[i] < 1e9)) {
            return PyErr_Format(PyExc_ValueError, "%s must be a number above 0 and below 1e9",
                                names[i]);
        }
    }
    plan_keep(model, &constants);
    return Py_NewRef(Py_None);
}
