/* Each tile size that `waves` chooses from, as a separate rung for any C. */
#define variant_waves variant_waves_that_chooses /* the choice itself is not used here */
#define launch_waves_cuda launch_waves_that_chooses
#include "../../csrc/gemm/tensor_cores/waves.cu"

LAUNCHER(waves_low)
{
    return launch_unless_short(launch_tile<Low<false>>, problem, where, WGMMA_MIN_K);
}

LAUNCHER(waves_wide)
{
    return launch_unless_short(launch_tile<Wide<false>>, problem, where, WGMMA_MIN_K);
}

ARCHITECTURE_SPECIFIC_VARIANT(waves_low, "64 x 128", "waves.cu", spec<Low<false>>, {9, 0});
ARCHITECTURE_SPECIFIC_VARIANT(waves_wide, "128 x 192", "waves.cu", spec<Wide<false>>, {9, 0});

#ifndef __CUDACC__
extern const Variant *const tilings_of_waves[];
const Variant *const tilings_of_waves[] = {&variant_waves_low, &variant_waves_wide, nullptr};
#endif
