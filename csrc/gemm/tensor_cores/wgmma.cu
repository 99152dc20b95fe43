// idea      products of a warpgroup (128 threads), which read both factors from shared memory
//           themselves; TMA loads the swizzled tiles, and one producer thread issues the loads.
// block     128 x 128 results by two consumer warpgroups of 64 x 128 each, beside a producer
//           warpgroup; tiles 128 x 32 and 32 x 128, in six stages; a thread has 2 x 32 results.
// traffic   8 / 128 bytes of fp16 from the L2 cache per multiply-add, as in mma, and 3 / 64 + 3 /
//           128 times 2 bytes from shared memory.
// bound by  power: the clock drops before the tensor cores are fully used.
// next      waves: other tile sizes, if these leave multiprocessors idle or use more power.
#include "wgmma_tiles.h"

namespace {

typedef WgmmaTile<2, 128, 6, false, false> Square;

__global__ void __launch_bounds__(Square::block_threads, 1)
    wgmma(const __grid_constant__ TmaProduct q)
{
    multiply_tile<Square>(q);
}

constexpr KernelSpec spec = spec_of_tile<Square>("wgmma", Square::block_threads);

Status launch(const Sgemm *problem, const Launch *where)
{
    return launch_wgmma_tiles<Square>(wgmma, spec, problem, where);
}

} // namespace

LAUNCHER(wgmma)
{
    return launch_unless_short(launch, problem, where, WGMMA_MIN_K);
}

ARCHITECTURE_SPECIFIC_VARIANT(wgmma,
                              "tiles loaded by TMA, multiplied from shared memory by warpgroups",
                              "wgmma.cu", spec, {9, 0});
