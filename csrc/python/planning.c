#include "planning.h"

#include "../engine/plan.h"

/* In the order of the fields of PlanConstants. */
#define CONSTANT(name, value) #name,
#define TILE(BM, BN, BK, ...) "slots_" #BM "x" #BN "x" #BK,
static const char *const names[] = {PLAN_CONSTANTS(CONSTANT) TILES(TILE)};
#undef TILE
#undef CONSTANT
enum { COUNT = sizeof names / sizeof *names };

const char plan_constants_doc[] =
    "The constants of the cost model for a GPU model: a dict from name to value.";

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
    "Replaces the constants of the cost model for a GPU model. Must be called before the first\n"
    "product on such a GPU.";

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
