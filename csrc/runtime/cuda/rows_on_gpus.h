/* Splits the rows of a product among several GPUs; the operands are on one of them. */
#ifndef SGEMM_CUDA_ROWS_ON_GPUS_H
#define SGEMM_CUDA_ROWS_ON_GPUS_H

#include "device_arrays.h"

/* Launches the problem on devices[0], the scope's device. If it pays off, the other devices compute
 * some of its rows. Returns when the others are done; devices[0] may still be working. */
Status launch_on_gpus(StreamScope *scope, const Variant *variant, const Sgemm *problem,
                      const int *devices, int count);

#endif
