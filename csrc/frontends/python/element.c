#include "element.h"

#include <string.h>

#include "attributes.h"

bool element_may_have_16_bits(const char *name)
{
    return strcmp(name, "A") == 0 || strcmp(name, "B") == 0;
}

const char *element_rule(const char *name)
{
    return element_may_have_16_bits(name)
               ? "but run() takes float32, float16 and bfloat16, and never converts silently: pass"
               : "but run() takes only float32 and never converts silently: pass";
}

/* Whether the dtype of an array of any library is bfloat16, by its text. */
static bool says_bfloat16(PyObject *array)
{
    PyObject *const value = attribute_of(array, "dtype");
    PyObject *const text = value ? PyObject_Str(value) : NULL;
    const char *const name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const char *const found = name ? strstr(name, "bfloat16") : NULL;
    const bool says = found && strcmp(found, "bfloat16") == 0;
    Py_XDECREF(text);
    Py_XDECREF(value);
    PyErr_Clear();
    return says;
}

/* NumPy gets the type bfloat16 from ml_dtypes. */
bool element_of_array(PyArrayObject *array, bool any_type, View *view)
{
    const int type = PyArray_TYPE(array);
    const bool is_bfloat16 = PyTypeNum_ISUSERDEF(type) && PyArray_ITEMSIZE(array) == 2 &&
                             says_bfloat16((PyObject *)array);
    view->type = type == NPY_HALF ? ELEMENT_FLOAT16
                 : is_bfloat16    ? ELEMENT_BFLOAT16
                                  : ELEMENT_FLOAT32;
    return type == NPY_FLOAT || (any_type && view->type != ELEMENT_FLOAT32);
}

bool element_of_tensor(const DlTensor *tensor, const char *name, View *view)
{
    const int code = tensor->element.code, bits = tensor->element.bits;
    view->type = bits == 32              ? ELEMENT_FLOAT32
                 : code == DLPACK_BFLOAT ? ELEMENT_BFLOAT16
                                         : ELEMENT_FLOAT16;
    const bool is_float = code == DLPACK_FLOAT && (bits == 32 || bits == 16);
    return (is_float || (code == DLPACK_BFLOAT && bits == 16)) && tensor->element.lanes == 1 &&
           (bits == 32 || element_may_have_16_bits(name));
}

/* The names of the interface. Both architectures that the package supports are little-endian. The
 * interface has no name for bfloat16: PyTorch says two bytes of any content. */
static const struct {
    const char *typestr;
    bool swapped;
    ElementType type;
} typestrs[] = {{"<f4", false, ELEMENT_FLOAT32},
                {">f4", true, ELEMENT_FLOAT32},
                {"<f2", false, ELEMENT_FLOAT16},
                {">f2", true, ELEMENT_FLOAT16},
                {"<V2", false, ELEMENT_BFLOAT16}};

bool element_of_interface(PyObject *typestr, const char *name, PyObject *argument, View *view)
{
    for (size_t index = 0; index < sizeof typestrs / sizeof *typestrs; ++index) {
        view->swapped = typestrs[index].swapped;
        view->type = typestrs[index].type;
        if (PyUnicode_Check(typestr) &&
            PyUnicode_CompareWithASCIIString(typestr, typestrs[index].typestr) == 0) {
            return (view->type == ELEMENT_FLOAT32 || element_may_have_16_bits(name)) &&
                   (view->type != ELEMENT_BFLOAT16 || says_bfloat16(argument));
        }
    }
    return false;
}
