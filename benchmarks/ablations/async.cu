// The rung async as the harness launches it: what other ways to bring tiles are measured against.
// Compiled and linked as tile.cu is; it has no constants.
#include "rung.h"

extern "C" __global__ void __launch_bounds__(T::threads) NAME(const Sgemm p)
{
    const Origin tile = tile_origin(p.C, T::BM, T::BN);
    const ThreadTile<T> own(threadIdx.x);
    float sum[T::TM][T::TN] = {};
    block_product<T>(p.A, p.B, tile, own, sum);
    store_thread_tile<T>(p, tile, own, sum);
}

static void start(const harness::Launch &launch, const float *A, const float *B, float *C, int n)
{
    NAME<<<launch.grid, launch.block, launch.shared>>>(product(A, B, C, n));
}

static const bool listed =
    list(TEXT(NAME), [](int n) { return of_tiles(NAME, sizeof(T::Shared), start, n); });
