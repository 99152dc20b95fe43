/* A kernel that the harness measures, and how it is launched. */
#ifndef SWEEPS_LAUNCH_H
#define SWEEPS_LAUNCH_H

#include <cstddef>

typedef void Kernel(const float *A, const float *B, float *C, int n);

struct Launch {
    Kernel *kernel;
    dim3 grid, block;
    size_t shared = 0; // bytes of dynamic shared memory
};

#endif
