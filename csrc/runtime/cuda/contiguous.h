/* Launches on a GPU, with copies of operands for a kernel that needs contiguous matrices. */
#ifndef SGEMM_CUDA_CONTIGUOUS_H
#define SGEMM_CUDA_CONTIGUOUS_H

#include "../../base/variant.h"

/* variant_launch on a GPU. A kernel that takes contiguous matrices gets one product at a time, and
 * copies of the matrices that are not contiguous, in temporary memory of the stream. */
Status launch_contiguous(const Variant *variant, const Sgemm *problem, const Launch *where,
                         int64_t *launched);

#endif
