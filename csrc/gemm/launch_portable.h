/* Launches `portable`, which adds the products of each result in ascending k. */
#ifndef SGEMM_KERNELS_LAUNCH_PORTABLE_H
#define SGEMM_KERNELS_LAUNCH_PORTABLE_H

#include "kernel/launch.h"
#include "kernel/launch_parts.h"

#ifdef __CUDACC__
extern "C" Launcher launch_portable_cuda;
#else
extern "C" const Variant variant_portable;
extern "C" const Variant variant_per_element;
#endif

/* Calls launch_part for parts of a batch, each of at most as many products as a grid can have rows.
 * Their sizes are equal up to rounding: no part of a batch is a single product, which some kernels
 * would compute in another order. */
template <class LaunchPart>
static inline Status launch_in_parts(const Sgemm *batch, const Launch *where,
                                     const LaunchPart &launch_part)
{
    const int64_t parts = (batch->count + BATCH_OF_LAUNCH - 1) / BATCH_OF_LAUNCH;
    const int64_t each = parts > 0 ? (batch->count + parts - 1) / parts : 1;
    return launch_parts(batch, where, each, launch_part);
}

#ifndef __CUDACC__
/* Whether each result is so small that it leaves more than three quarters of a tile of 128 x 128
 * empty. With a longer K, the CPU device is faster with tiles nevertheless. */
static inline bool leaves_tile_empty(const Sgemm *problem)
{
    constexpr int64_t side = 128, most_products = 1 << 18;
    const int64_t rows = problem->C.rows, cols = problem->C.cols;
    return rows <= side && cols <= side && 4 * rows * cols < side * side &&
           problem->A.cols <= most_products / (rows * cols);
}
#endif

static inline Status launch_portable(const Sgemm *batch, const Launch *where)
{
    const Status status = addend_copy(where, batch->count);
    if (status.code != STATUS_OK) {
        return status;
    }
#ifdef __CUDACC__
    Launcher *const launcher = launch_portable_cuda;
#else
    const Variant &variant = leaves_tile_empty(batch) ? variant_per_element : variant_portable;
    Launcher *const launcher = variant.launch[DEVICE_CPU];
#endif
    return launch_in_parts(batch, where, launcher);
}

#endif
