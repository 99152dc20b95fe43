/* The host's side of a copy: memory for staging, and arrays that need none. */
#ifndef SGEMM_CUDA_STAGING_H
#define SGEMM_CUDA_STAGING_H

#include "../core/pinned.h"
#include "../core/status.h"
#include "../core/strided.h"

/* Staging memory: pinned, or ordinary where that is not to be had, which CUDA then stages itself. */
struct Staging {
    PinnedBlock *pinned;
    char *memory;
};

/* False if there is none, of which no_staging then tells. give_staging takes what was never taken, too;
 * all copies from and to the memory are done by then. */
bool take_staging(int device, size_t bytes, Staging *staging);
void give_staging(Staging *staging);
Status no_staging(size_t bytes);

/* A part of a host array as a matrix that the GPU can copy from or to by itself; lines are its
 * columns when by_columns. False if it cannot. */
bool reach(const Strided *part, bool by_columns, Matrix *matrix);

#endif
