/* The module's state: its exceptions, and the type of results on a GPU. */
#ifndef SGEMM_PYTHON_STATE_H
#define SGEMM_PYTHON_STATE_H

#include "python.h"

struct DlExchange;

/* Types of arrays that were looked up before: see exchange.h. */
enum { KNOWN_TYPES = 8 };
typedef struct {
    PyTypeObject *type;
    const struct DlExchange *exchange; /* NULL: the type has none */
} KnownType;

enum { RUN_KEYWORDS = 6 };

typedef struct {
    PyObject *Error;
    PyObject *DeviceError;
    PyObject *OutOfMemoryError;
    PyObject *UnsupportedVariantError;
    PyObject *DeviceArray;
    PyObject *PreparedMatrix;
    PyObject *keywords[RUN_KEYWORDS]; /* the names of run()'s keywords, interned */
    KnownType known_types[KNOWN_TYPES];
    unsigned types_found; /* the next one replaces known_types[types_found % KNOWN_TYPES] */
} State;

static inline State *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

#endif
