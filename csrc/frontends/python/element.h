/* The types of an operand's elements, by the names that arrays give them. */
#ifndef SGEMM_PYTHON_ELEMENT_H
#define SGEMM_PYTHON_ELEMENT_H

#include "../../runtime/view.h"
#include "dlpack.h"
#include "python.h"

/* Whether the argument of run() of that name may have elements of 16 bits. */
bool element_may_have_16_bits(const char *name);

/* What messages say about an argument of another dtype. */
const char *element_rule(const char *name);

/* The following set the type of the view, and `swapped` where it says so. They return false if the
 * type is none that the argument may have. */

/* Only float32 if not any_type. */
bool element_of_array(PyArrayObject *array, bool any_type, View *view);

bool element_of_tensor(const DlTensor *tensor, const char *name, View *view);

/* By the CUDA array interface. Sets `swapped`. */
bool element_of_interface(PyObject *typestr, const char *name, PyObject *argument, View *view);

#endif
