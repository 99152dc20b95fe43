/* Finds the variant and the devices that a call names. On failure, functions that return a pointer,
 * a bool or a number of devices set an exception. */
#ifndef SGEMM_PYTHON_CHOOSING_H
#define SGEMM_PYTHON_CHOOSING_H

#include <stdbool.h>

#include "../../runtime/device.h"
#include "../../runtime/multi_gpu.h"
#include "python.h"

/* The text of a str argument, valid as long as the argument. NULL with TypeError or ValueError set
 * if the argument is not a str or not a valid name. */
const char *text_of(PyObject *argument, const char *name, const char *example);

/* The variant that the argument names, looked up with `find`. NULL with an exception set if there
 * is none. */
const Variant *choose_variant(PyObject *argument, const Variant *(*find)(const char *name));

/* Finds the GPU of device='cuda' or 'cuda:<index>'. index_text is the text after "cuda". */
bool choose_gpu(PyObject *module, const char *index_text, int *index);

/* Whether the device can run the variant; if not, sets an exception. */
bool can_run(PyObject *module, const Variant *variant, DeviceKind kind, int index);

/* Sets the kind and indices of the devices that the argument names and returns their number. 0 with
 * an exception set if a device does not exist or cannot run the variant. */
int choose_devices(PyObject *module, const Variant *variant, PyObject *argument, DeviceKind *kind,
                   int devices[MOST_GPUS]);

/* Module method _open_cublas(path): makes the reference variant use the library at `path`. */
PyObject *open_cublas_at(PyObject *module, PyObject *path);

#endif
