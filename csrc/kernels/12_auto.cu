// Not a rung, but the choice of one: for a shape, where its operands lie, and the device.
#include "../core/plan.h"
#include "kernel.h"

#ifndef SGEMM_COUNTED // whose counts are those of the rung that it chooses
#ifdef __CUDACC__
#include "by_rows.h"

extern "C" Launcher launch_warptile_cuda;

/* A plan for splitk, which without splitting is raster; where asynchronous copies are missing, the
 * rung before them. */
static Status launch(const Sgemm *problem, const Launch *where)
{
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, where->device);
    if (major < 8) {
        return launch_warptile_cuda(problem, where);
    }
    const Plan plan = plan_any(problem, multiprocessors_of(where));
    return launch_plan_cuda(problem, where, &plan);
}

LAUNCHER(auto)
{
    return launch_by_rows(problem, where, launch);
}
#else
extern "C" const Variant variant_tile2d;

/* The rung that takes a CPU the least time. */
LAUNCHER(auto)
{
    return variant_tile2d.launch[DEVICE_CPU](problem, where);
}
#endif

VARIANT(auto, "the rung and the tiling that suit the shape and the device", nullptr, {}, {}, 0, 0,
        {7, 5});
#endif
