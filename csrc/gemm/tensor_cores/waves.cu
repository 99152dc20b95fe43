// idea      choose the tile size by C's shape. A wave is as many blocks as run at once; the last is
//           rarely full. Low tiles if there are fewer tiles than multiprocessors; wide tiles, which
//           read less shared memory per product, if their waves are as full as the others'.
// block     64 x 128, 128 x 128 or 128 x 192 results by one or two consumer warpgroups, and a
//           producer warpgroup; tiles 32 deep, in eight, six or five stages.
// traffic   6.7 / 128 bytes of fp16 from the L2 cache per multiply-add for 128 x 192.
// bound by  power from 2048 on: the clock drops before the tensor cores are fully used.
// next      fused: thin products spend most of their time on writing and reading A's fp16 pairs.
#include "../plan/waves_plan.h"
#include "wgmma_tiles.h"

namespace {

template <class T>
__global__ void __launch_bounds__(T::block_threads, 1) waves(const __grid_constant__ TmaProduct q)
{
    multiply_tile<T>(q);
}

template <class T> constexpr KernelSpec spec = spec_of_tile<T>("waves", T::block_threads);

template <class T> Status launch_tile(const Sgemm *problem, const Launch *where)
{
    return launch_wgmma_tiles<T>(waves<T>, spec<T>, problem, where);
}

#define TILE(NAME, ROWS, COLS, STAGES, TIME)                                                       \
    template <bool SYMMETRIC> using NAME = WgmmaTile<ROWS / 64, COLS, STAGES, SYMMETRIC, true>;
WAVES_TILES(TILE)
#undef TILE

template <bool SYMMETRIC> Status launch_best_tile(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_of(where, &multiprocessors);
    if (status.code != STATUS_OK || multiprocessors == 0) {
        return status.code != STATUS_OK ? status : launch_tile<Square<SYMMETRIC>>(problem, where);
    }
#define TILE(NAME, ROWS, COLS, STAGES, TIME) launch_tile<NAME<SYMMETRIC>>,
    static constexpr Launcher *launchers[] = {WAVES_TILES(TILE)};
#undef TILE
    return launchers[plan_waves(problem, SYMMETRIC, multiprocessors).tile](problem, where);
}

Status launch(const Sgemm *problem, const Launch *where)
{
    return (where->symmetric ? launch_best_tile<true> : launch_best_tile<false>)(problem, where);
}

} // namespace

LAUNCHER(waves)
{
    return launch_unless_short(launch, problem, where, WGMMA_MIN_K);
}

ARCHITECTURE_SPECIFIC_VARIANT(waves,
                              "tiles of the size that leaves the fewest multiprocessors idle",
                              "waves.cu", spec<Square<false>>, {9, 0});
