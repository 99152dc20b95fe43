/* Host side of a copy: staging buffers, and host arrays that the GPU can copy directly. */
#ifndef SGEMM_CUDA_STAGING_H
#define SGEMM_CUDA_STAGING_H

#include "../../base/status.h"
#include "../pinned.h"
#include "../strided.h"

/* A staging buffer in pinned memory. If none is available it is pageable, and CUDA stages it
 * again. */
struct Staging {
    PinnedBlock *pinned;
    char *memory;
};

/* alloc_staging returns false if memory is short; no_staging is the error for that. All copies must
 * be done before free_staging, which also accepts a zero-initialised Staging. */
bool alloc_staging(int device, size_t bytes, Staging *staging);
void free_staging(Staging *staging);
Status no_staging(size_t bytes);

/* The part of a host array as a matrix in pinned memory, which the GPU can copy without staging;
 * column-major if by_columns. False if staging is necessary, as for a part of another type. */
bool as_pinned_matrix(const Strided *part, bool by_columns, Matrix *matrix,
                      ElementType type = ELEMENT_FLOAT32);

#endif
