#include "prepared.h"

#include "../../runtime/catalog.h"
#include "choosing.h"
#include "device_array.h"
#include "interop.h"
#include "operand.h"
#include "raising.h"
#include "running.h"
#include "state.h"

typedef struct {
    PyObject ob_base;
    PyObject *array;     /* the copy of B: a DeviceArray, or on the CPU device a numpy.ndarray */
    DeviceBuffer *pairs; /* NULL: products with B use none */
    ElementType type;    /* of the copy's elements */
    PyObject *device;    /* its name */
} PreparedMatrix;

static PreparedMatrix *of(PyObject *self)
{
    return (PreparedMatrix *)self;
}

static const DeviceArrays *arrays(void)
{
    return device_kinds[DEVICE_CUDA]->arrays;
}

static void drop(DeviceBuffer *buffer)
{
    if (buffer) {
        arrays()->drop(buffer);
    }
}

/* Takes over the array, the pairs and the device's name, even on failure. */
static PyObject *new_prepared(PyObject *module, PyObject *array, ElementType of_array,
                              DeviceBuffer *pairs, PyObject *device)
{
    PyTypeObject *const type = (PyTypeObject *)state_of(module)->PreparedMatrix;
    PreparedMatrix *const made = array && device ? PyObject_New(PreparedMatrix, type) : NULL;
    if (!made) {
        Py_XDECREF(device);
        Py_XDECREF(array);
        drop(pairs);
        return NULL;
    }
    made->array = array;
    made->type = of_array;
    made->pairs = pairs;
    made->device = device;
    return (PyObject *)made;
}

static void deallocate(PyObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    drop(of(self)->pairs);
    Py_DECREF(of(self)->array);
    Py_DECREF(of(self)->device);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ------------------------------------------------------------------ preparing */

/* The matrix that is to be prepared. Sets ValueError and returns false if B is not one matrix. */
static bool matrix_of(const View *B, Strided *matrix)
{
    if (B->axes != 2) {
        PyErr_Format(PyExc_ValueError,
                     "B has %d dimensions, but prepare() takes one matrix of shape (K, N): %s",
                     B->axes,
                     B->axes < 2 ? "pass B.reshape(-1, 1) for a column"
                                 : "prepare each matrix of a batch by itself");
        return false;
    }
    *matrix = (Strided){.data = B->data,
                        .rows = B->shape[0],
                        .cols = B->shape[1],
                        .row_bytes = B->bytes[0],
                        .col_bytes = B->bytes[1],
                        .swapped = B->swapped,
                        .type = B->type};
    return true;
}

/* NumPy's type for the copy of B on the CPU device. Elements of 16 bits stay as they are if `auto`
 * takes them so, except for a tensor of bfloat16: NumPy has no such type. Sets *type. */
static PyArray_Descr *type_on_host(PyObject *B, const Strided *matrix, ElementType *type)
{
    const bool is_named = matrix->type == ELEMENT_FLOAT16 || PyArray_Check(B);
    *type = is_named && product_takes_16bit(DEVICE_CPU, 0) ? matrix->type : ELEMENT_FLOAT32;
    return *type == ELEMENT_BFLOAT16
               ? (PyArray_Descr *)Py_NewRef((PyObject *)PyArray_DESCR((PyArrayObject *)B))
               : PyArray_DescrFromType(*type == ELEMENT_FLOAT16 ? NPY_HALF : NPY_FLOAT);
}

/* A copy in host memory, by rows or columns as the matrix is. */
static PyObject *copy_on_host(PyObject *module, PyObject *B, const Strided *matrix,
                              ElementType *type)
{
    npy_intp shape[] = {(npy_intp)matrix->rows, (npy_intp)matrix->cols};
    PyObject *const array =
        PyArray_NewFromDescr(&PyArray_Type, type_on_host(B, matrix, type), 2, shape, NULL, NULL,
                             is_column_major(matrix) ? NPY_ARRAY_F_CONTIGUOUS : 0, NULL);
    if (!array) {
        raise_out_of_memory(module);
        return NULL;
    }
    const npy_intp *const bytes = PyArray_STRIDES((PyArrayObject *)array);
    const Strided copy = {.data = PyArray_DATA((PyArrayObject *)array),
                          .rows = matrix->rows,
                          .cols = matrix->cols,
                          .row_bytes = bytes[0],
                          .col_bytes = bytes[1],
                          .type = *type};
    Py_BEGIN_ALLOW_THREADS;
    strided_copy(&copy, matrix);
    Py_END_ALLOW_THREADS;
    return array;
}

/* Copies a matrix to the scope's GPU and splits it there. */
static PyObject *prepare_in(PyObject *module, StreamScope *scope, const Strided *matrix,
                            bool on_host)
{
    DeviceBuffer *copy = NULL, *pairs = NULL;
    Status status;
    Py_BEGIN_ALLOW_THREADS;
    status = arrays()->prepare(scope, matrix, on_host, &copy, &pairs);
    Py_END_ALLOW_THREADS;
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    const bool by_columns = is_column_major(matrix);
    const int64_t shape[] = {by_columns ? matrix->cols : matrix->rows,
                             by_columns ? matrix->rows : matrix->cols};
    PyObject *array =
        device_array_new((PyTypeObject *)state_of(module)->DeviceArray, copy, 2, shape);
    if (array && by_columns) {
        PyObject *const stored = array;
        array = PyObject_GetAttrString(stored, "T");
        Py_DECREF(stored);
    }
    return new_prepared(module, array, copy->type, pairs,
                        PyUnicode_FromFormat(GPU_KIND ":%d", scope->device));
}

/* Prepares a matrix in host memory on the device that the argument names. */
static PyObject *prepare_host(PyObject *module, PyObject *B, PyObject *device)
{
    View view;
    Strided matrix;
    int devices[MOST_GPUS];
    DeviceKind kind;
    if (!interop_host_operand(module, B, "B", &view) || !matrix_of(&view, &matrix)) {
        return NULL;
    }
    const int count = choose_devices(module, catalog_find("auto"), device, &kind, devices);
    if (count == 0) {
        return NULL;
    }
    if (count > 1) {
        PyErr_SetString(PyExc_ValueError,
                        "prepare() takes one device, but device='" GPU_KIND
                        ":all' is all GPUs: pass '" GPU_KIND ":0', and prepare B on each GPU");
        return NULL;
    }
    if (kind == DEVICE_CPU) {
        ElementType type;
        PyObject *const copy = copy_on_host(module, B, &matrix, &type);
        return new_prepared(module, copy, type, NULL, PyUnicode_FromString("cpu"));
    }
    StreamScope scope;
    if (!run_enter(module, devices[0], NULL, &scope)) {
        return NULL;
    }
    PyObject *const made = prepare_in(module, &scope, &matrix, true);
    arrays()->leave(&scope);
    return made;
}

/* Prepares a matrix on its own GPU. */
static PyObject *prepare_on_gpu(PyObject *module, PyObject *B, PyObject *device)
{
    Imported imported = {.name = "B", .argument = B};
    char index[16];
    int gpu;
    if (!interop_locate(&imported, module)) {
        return NULL;
    }
    PyOS_snprintf(index, sizeof index, ":%d", imported.device < 0 ? 0 : imported.device);
    if (!choose_gpu(module, index, &gpu)) {
        return NULL;
    }
    if (device != Py_None) {
        PyObject *const own = PyUnicode_FromFormat(GPU_KIND "%s", index);
        const int same = own ? PyObject_RichCompareBool(own, device, Py_EQ) : -1;
        Py_XDECREF(own);
        if (same == 0) {
            PyErr_Format(PyExc_ValueError,
                         "B is on " GPU_KIND
                         ":%d but device is %R: omit device, or pass a B in host "
                         "memory or on that device",
                         gpu, device);
        }
        if (same <= 0) {
            return NULL;
        }
    }
    StreamScope scope;
    if (!run_enter(module, gpu, NULL, &scope)) {
        return NULL;
    }
    Strided matrix;
    PyObject *const made =
        interop_import(&imported, &scope, module) && matrix_of(&imported.view, &matrix)
            ? prepare_in(module, &scope, &matrix, false)
            : NULL;
    arrays()->leave(&scope);
    interop_release(&imported);
    return made;
}

const char prepare_doc[] = PyDoc_STR(
    "prepare(B, *, device=None)\n--\n\n"
    "Prepare a matrix B for many products, such as the weights of a layer.\n"
    "\n"
    "On a GPU whose tensor cores `auto` uses, each product splits B into fp16 pairs. A prepared\n"
    "matrix is split once, here. A float16 or bfloat16 matrix stays as it is if `auto` takes it\n"
    "so, and otherwise becomes float32. Products have the same bits as those with a contiguous "
    "B.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "B : array of float32, float16 or bfloat16, shape (K, N)\n"
    "    In host memory or on a GPU, as for run(). It is copied, so later changes have no effect.\n"
    "device : str, optional\n"
    "    As for run(), but one device. Arrays on a GPU are prepared there.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "PreparedMatrix\n"
    "    Pass it as B: ``run('auto', A, prepared)``, or with 'waves' or 'fused'.\n"
    "\n"
    "Raises\n"
    "------\n"
    "TypeError\n"
    "    B has the wrong type or dtype.\n"
    "ValueError\n"
    "    B is not a matrix, or is on another GPU than `device`, or `device` is not one device.\n"
    "OutOfMemoryError\n"
    "    The host or the GPU is out of memory.\n"
    "DeviceError\n"
    "    The device is missing or failed.");

PyObject *prepare(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"B", "device", NULL};
    PyObject *B, *device = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$O:prepare", names, &B, &device)) {
        return NULL;
    }
    if ((PyObject *)Py_TYPE(B) == state_of(module)->PreparedMatrix) {
        PyErr_SetString(PyExc_TypeError, "B is a prepared matrix already: pass it to run() as B");
        return NULL;
    }
    const int on_gpu = interop_may_import(module, B);
    return on_gpu < 0   ? NULL
           : on_gpu > 0 ? prepare_on_gpu(module, B, device)
                        : prepare_host(module, B, device);
}

/* ------------------------------------------------------------------ in a product */

bool prepared_is_only_B(PyObject *module, const RunArguments *arguments)
{
    const struct {
        const char *name;
        PyObject *argument;
    } others[] = {{"A", arguments->A}, {"C", arguments->C}, {"out", arguments->out}};
    for (size_t index = 0; index < sizeof others / sizeof *others; ++index) {
        if ((PyObject *)Py_TYPE(others[index].argument) == state_of(module)->PreparedMatrix) {
            PyErr_Format(PyExc_TypeError,
                         "%s is a prepared matrix, but only B may be one: pass the array that "
                         "prepare() was given",
                         others[index].name);
            return false;
        }
    }
    return true;
}

bool prepared_replace(PyObject *module, RunArguments *arguments)
{
    if (!prepared_is_only_B(module, arguments)) {
        return false;
    }
    if ((PyObject *)Py_TYPE(arguments->B) != state_of(module)->PreparedMatrix) {
        return true;
    }
    static const char *const users[] = {"auto", "waves", "fused", "invariant"};
    bool uses = false;
    for (size_t index = 0; index < sizeof users / sizeof *users; ++index) {
        uses = uses || arguments->variant == catalog_find(users[index]);
    }
    if (!uses) {
        PyErr_Format(PyExc_ValueError,
                     "'%s' cannot use a prepared B: pass 'auto', 'waves', 'fused' or 'invariant', "
                     "or the matrix itself",
                     arguments->variant->name);
        return false;
    }
    PreparedMatrix *const B = of(arguments->B);
    const int same = arguments->device == Py_None
                         ? 1
                         : PyObject_RichCompareBool(arguments->device, B->device, Py_EQ);
    if (same == 0) {
        PyErr_Format(
            PyExc_ValueError,
            "B is prepared on %R but device is %R: omit device, or prepare B on that device",
            B->device, arguments->device);
    }
    arguments->B = B->array;
    arguments->pairs = B->pairs;
    arguments->is_prepared = true;
    arguments->device = PyArray_Check(B->array) ? B->device : Py_None;
    return same > 0;
}

static bool is_numpys_or_none(PyObject *argument)
{
    return argument == Py_None || PyArray_Check(argument);
}

bool prepared_is_far(const RunArguments *arguments)
{
    return arguments->is_prepared && !PyArray_Check(arguments->B) && PyArray_Check(arguments->A) &&
           is_numpys_or_none(arguments->C) && is_numpys_or_none(arguments->out);
}

/* A copy of an array of NumPy on the scope's GPU, or None for None. */
static PyObject *copy_to_gpu(PyObject *module, StreamScope *scope, PyObject *argument,
                             const char *name)
{
    View view;
    if (argument == Py_None) {
        return Py_NewRef(Py_None);
    }
    if (!operand_of_run(argument, name, &view)) {
        return NULL;
    }
    PyArray_Descr *const type =
        view.type == ELEMENT_FLOAT32 ? PyArray_DescrFromType(NPY_FLOAT) : NULL; /* its own */
    PyObject *const contiguous = PyArray_FromArray((PyArrayObject *)argument, type,
                                                   NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED);
    if (!contiguous) {
        return NULL;
    }
    const npy_intp size = PyArray_SIZE((PyArrayObject *)contiguous);
    const Strided row = {.data = PyArray_DATA((PyArrayObject *)contiguous),
                         .rows = 1,
                         .cols = size,
                         .row_bytes = size * element_bytes(view.type),
                         .col_bytes = element_bytes(view.type),
                         .type = view.type};
    DeviceBuffer *copy = NULL, *pairs = NULL; /* a row has no pairs */
    Status status;
    Py_BEGIN_ALLOW_THREADS;
    status = arrays()->prepare(scope, &row, true, &copy, &pairs);
    Py_END_ALLOW_THREADS;
    Py_DECREF(contiguous);
    if (status.code != STATUS_OK) {
        raise_status(module, &status);
        return NULL;
    }
    return device_array_new((PyTypeObject *)state_of(module)->DeviceArray, copy, view.axes,
                            view.shape);
}

/* Computes a product of arrays on the GPU, and copies the result to `out` or a new array. */
static PyObject *run_and_fetch(PyObject *module, const RunArguments *arguments, PyObject *out)
{
    PyObject *const result = run_product(module, arguments);
    PyObject *const host = result ? PyObject_CallMethod(result, "__array__", NULL) : NULL;
    Py_XDECREF(result);
    if (!host || out == Py_None) {
        return host;
    }
    const int copied = PyArray_CopyInto((PyArrayObject *)out, (PyArrayObject *)host);
    Py_DECREF(host);
    return copied < 0 ? NULL : Py_NewRef(out);
}

PyObject *prepared_run_far(PyObject *module, const RunArguments *arguments)
{
    PyObject *const out = arguments->out;
    View view;
    if (!run_has_no_stream(arguments)) {
        return NULL;
    }
    if (out != Py_None &&
        (!operand_array(out, "out", &view) ||
         !operand_is_writable(!PyArray_ISWRITEABLE((PyArrayObject *)out), &view, true))) {
        return NULL;
    }
    StreamScope scope;
    if (!run_enter(module, device_array_block(arguments->B)->device, NULL, &scope)) {
        return NULL;
    }
    RunArguments there = *arguments;
    there.A = copy_to_gpu(module, &scope, arguments->A, "A");
    there.C = there.A ? copy_to_gpu(module, &scope, arguments->C, "C") : NULL;
    there.out = there.C ? copy_to_gpu(module, &scope, out, "out") : NULL;
    arrays()->leave(&scope);
    PyObject *const result = there.out ? run_and_fetch(module, &there, out) : NULL;
    Py_XDECREF(there.out);
    Py_XDECREF(there.C);
    Py_XDECREF(there.A);
    return result;
}

/* ------------------------------------------------------------------ the type */

static PyObject *shape(PyObject *self, void *Py_UNUSED(closure))
{
    return PyObject_GetAttrString(of(self)->array, "shape");
}

static PyObject *bytes(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *const both = shape(self, NULL);
    long long rows, cols;
    const bool found = both && PyArg_ParseTuple(both, "LL", &rows, &cols);
    Py_XDECREF(both);
    const DeviceBuffer *const pairs = of(self)->pairs;
    const int64_t elements = pairs ? pairs->matrix.rows * pairs->matrix.cols : 0;
    return found ? PyLong_FromLongLong(rows * cols * element_bytes(of(self)->type) +
                                       elements * element_bytes(ELEMENT_FLOAT32))
                 : NULL;
}

static PyObject *device(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(of(self)->device);
}

static PyObject *represent(PyObject *self)
{
    PyObject *const tuple = shape(self, NULL);
    static const char *const names[] = {[ELEMENT_FLOAT32] = "float32",
                                        [ELEMENT_FLOAT16] = "float16",
                                        [ELEMENT_BFLOAT16] = "bfloat16"};
    PyObject *const text =
        tuple ? PyUnicode_FromFormat("PreparedMatrix(shape=%S, dtype=%s, device=%R)", tuple,
                                     names[of(self)->type], of(self)->device)
              : NULL;
    Py_XDECREF(tuple);
    return text;
}

static PyGetSetDef attributes[] = {
    {"shape", shape, NULL, "The matrix's shape, (K, N).", NULL},
    {"nbytes", bytes, NULL,
     "The number of bytes of the copy of B, and of its fp16 pairs if it has any.", NULL},
    {"device", device, NULL, "The device that holds the matrix, such as 'cuda:0' or 'cpu'.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(
    type_doc,
    "A matrix B that prepare() made, for many products: run('auto', A, prepared).\n\n"
    "It owns a copy of B, and on a GPU with tensor cores that `auto` uses, the fp16 pairs of a\n"
    "float32 B if K is at least 128. The memory is reused after the object is gone and all "
    "products\n"
    "with it are done.");

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)deallocate},
    {Py_tp_repr, (void *)represent},
    {Py_tp_getset, attributes},
    {Py_tp_doc, (void *)type_doc},
    {0, NULL},
};

static PyType_Spec specification = {
    .name = "sgemm_kernels.PreparedMatrix",
    .basicsize = sizeof(PreparedMatrix),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

PyObject *prepared_make_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &specification, NULL);
}
