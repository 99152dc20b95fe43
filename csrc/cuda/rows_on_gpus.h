/* Rows of a product whose operands are on one GPU, computed by several. */
#ifndef SGEMM_CUDA_ROWS_ON_GPUS_H
#define SGEMM_CUDA_ROWS_ON_GPUS_H

#include "device_arrays.h"

/* Launches the problem on devices[0], the visit's, and rows of it on as many others as make it
 * faster; returns when those are done, while devices[0] may still work. */
Status launch_on_gpus(Visit *visit, const Variant *variant, const Sgemm *problem,
                      const int *devices, int count);

#endif
