// `invariant`: the bits of a row of C depend on that row of A, on B, alpha, beta and the row of the
// added C, and on nothing else. docs/use/same_bits.md.
#ifndef SGEMM_TRACED // the traced build counts the rungs
#include "launch_portable.h"

#ifndef __CUDACC__
#include "../emulator/tensor_core_model.h"

extern "C" const Variant variant_fixed;
#elif !defined(SGEMM_HIP)
extern "C" Launcher launch_fixed_cuda;
#endif

/* The kernel on tensor cores, if the device has those that it needs. */
static Launcher *on_tensor_cores(const Launch *where)
{
#if defined(SGEMM_HIP)
    (void)where;
    return nullptr;
#elif defined(__CUDACC__)
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, where->device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, where->device);
    return major == 9 && minor == 0 ? launch_fixed_cuda : nullptr;
#else
    (void)where;
    const TensorCoreModel model = cpu_tensor_cores();
    return model.major == 9 && model.minor == 0 ? variant_fixed.launch[DEVICE_CPU] : nullptr;
#endif
}

LAUNCHER(invariant)
{
    Launcher *const launcher = problem->A.cols < WGMMA_MIN_K ? nullptr : on_tensor_cores(where);
    return (launcher ? launcher : launch_portable)(problem, where);
}

ANY_BATCH_VARIANT(invariant, "as auto, but a row has the same bits in every batch", nullptr,
                  KernelSpec{.reads_addend = true, .rows_alone = true}, {7, 5});
#endif
