#include "dlpack_exchange.h"

#include "attributes.h"
#include "state.h"

/* The newest functions of a version that this file was written for, or NULL. */
static const DlExchange *usable(const DlExchange *exchange)
{
    while (exchange && exchange->version.major > 1) {
        exchange = exchange->older;
    }
    return exchange && exchange->version.major == 1 && exchange->view ? exchange : NULL;
}

static const DlExchange *look_up(PyTypeObject *type)
{
    PyObject *const capsule = attribute_of((PyObject *)type, "__dlpack_c_exchange_api__");
    const DlExchange *exchange = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
        exchange = usable(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    }
    Py_XDECREF(capsule);
    PyErr_Clear(); /* a type whose attribute cannot be read has the older protocols */
    return exchange;
}

const DlExchange *dlpack_exchange_of(PyObject *module, PyObject *argument)
{
    State *const state = state_of(module);
    PyTypeObject *const type = Py_TYPE(argument);
    for (int index = 0; index < KNOWN_TYPES; ++index) {
        if (state->known_types[index].type == type) {
            return state->known_types[index].exchange;
        }
    }
    const KnownType found = {(PyTypeObject *)Py_NewRef((PyObject *)type), look_up(type)};
    KnownType *const place = &state->known_types[state->types_found++ % KNOWN_TYPES];
    PyObject *const replaced = (PyObject *)place->type;
    *place = found;
    Py_XDECREF(replaced);
    return found.exchange;
}

bool dlpack_exchange_view(const DlExchange *exchange, PyObject *argument, DlTensor *tensor)
{
    const bool done = exchange->view(argument, tensor) == 0;
    if (!done) {
        PyErr_Clear();
    }
    return done;
}

static void set_error(void *Py_UNUSED(context), const char *kind, const char *message)
{
    PyErr_Format(PyExc_MemoryError, "%s: %s", kind, message);
}

static void release(DlVersioned *tensor)
{
    if (tensor->deleter) {
        tensor->deleter(tensor);
    }
}

PyObject *dlpack_exchange_new(const DlExchange *exchange, int device_kind, int device_index,
                              int axes, const int64_t *shape, void **memory)
{
    int64_t counts[VIEW_AXES], strides[VIEW_AXES], stride = 1;
    for (int axis = axes; axis-- > 0;) {
        counts[axis] = shape[axis];
        strides[axis] = stride;
        stride *= shape[axis] > 0 ? shape[axis] : 1;
    }
    DlTensor like = {.device = {device_kind, device_index},
                     .dimensions = axes,
                     .element = {DLPACK_FLOAT, 32, 1},
                     .shape = counts,
                     .strides = strides};
    DlVersioned *made = NULL;
    void *object = NULL;
    if (exchange->allocate(&like, &made, NULL, set_error) != 0) {
        return NULL;
    }
    const DlTensor *const tensor = &made->tensor;
    *memory = (char *)tensor->data + tensor->byte_offset;
    if (exchange->to_object(made, &object) != 0) {
        release(made);
        return NULL;
    }
    return object;
}

int dlpack_exchange_is_read_only(const DlExchange *exchange, PyObject *argument)
{
    DlVersioned *tensor = NULL;
    if (exchange->export_object(argument, &tensor) != 0) {
        return -1;
    }
    const int read_only = (tensor->flags & DLPACK_READ_ONLY) != 0;
    release(tensor);
    return read_only;
}
