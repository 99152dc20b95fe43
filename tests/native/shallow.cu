/* streamk where a block has too little shared memory for tiles of the whole depth, as no CPU device says
 * of itself: what async, raster and splitk multiply by then, too. */
#include "../../csrc/ladder/kernel.h"

static bool has_too_little(const Launch *, const KernelSpec &)
{
    return false;
}
#define has_shared_memory has_too_little
#include "../../csrc/ladder/12_streamk.cu"

LAUNCHER(shallow)
{
    return launch_in_shares(problem, where);
}

VARIANT(shallow, "streamk with tiles half as deep", "12_streamk.cu", spec_of_shares<Streamed<16>>(),
        {8, 0});
