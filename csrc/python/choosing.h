/* Which variant and which devices a call names. Each sets an exception where it says that it fails. */
#ifndef SGEMM_PYTHON_CHOOSING_H
#define SGEMM_PYTHON_CHOOSING_H

#include <stdbool.h>

#include "../core/device.h"
#include "../core/multi_gpu.h"
#include "python.h"

/* The text of a str argument, valid as long as the argument; NULL with TypeError set if it is
 * none. */
const char *text_of(PyObject *argument, const char *name, const char *example);

/* The variant that the argument names, as `find` knows it; NULL with an exception set if none. */
const Variant *choose_variant(PyObject *argument, const Variant *(*find)(const char *name));

/* How many GPUs there are, and why there are none. */
Status cuda_count(int *count);

/* The first GPU that this build can use, or -1 and why there is none. */
int first_usable_gpu(Status *why);

/* device='cuda' or 'cuda:<index>', given the text after "cuda". */
bool choose_gpu(PyObject *module, const char *index_text, int *index);

/* Whether the device can run the variant; if not, sets an exception. */
bool can_run(PyObject *module, const Variant *variant, DeviceKind kind, int index);

/* The devices that the argument names, which can run the variant: their kind and indices, and how
 * many; 0 with an exception set if one cannot. */
int choose_devices(PyObject *module, const Variant *variant, PyObject *argument, DeviceKind *kind,
                   int devices[MOST_GPUS]);

/* _open_cublas(path): has the variant cublas use the library there. A method of the module. */
PyObject *open_cublas_at(PyObject *module, PyObject *path);

#endif
