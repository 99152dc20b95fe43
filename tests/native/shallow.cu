/* streamk with half the tile depth, as on a GPU with less shared memory per block. No CPU device
 * has so little. */
#define variant_streamk variant_streamk_as_it_is /* not used here */
#define launch_streamk_cuda launch_streamk_as_it_is
#include "../../csrc/gemm/simt/streamk.cu"

LAUNCHER(shallow)
{
    return launch<DEPTH / 2>(problem, where);
}

VARIANT(shallow, "streamk with tiles half as deep", "streamk.cu", spec<DEPTH / 2>, {8, 0});
