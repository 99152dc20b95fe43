/* A kernel that the harness measures, and how it is launched. */
#ifndef SWEEPS_LAUNCH_H
#define SWEEPS_LAUNCH_H

#include <cstddef>

namespace harness {

typedef void Kernel(const float *A, const float *B, float *C, int n);

struct Launch;
typedef void Start(const Launch &launch, const float *A, const float *B, float *C, int n);

struct Launch {
    Kernel *kernel;
    dim3 grid, block;
    size_t shared = 0; // bytes of dynamic shared memory
    // Launches a kernel that takes something else than a Kernel does, made from the same operands;
    // `kernel` is then its address, and not called.
    Start *start = nullptr;
};

} // namespace harness

#endif
