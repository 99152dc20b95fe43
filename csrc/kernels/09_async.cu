// idea      copy tiles asynchronously, straight to shared memory, a tile ahead of the arithmetic.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a ring of four stages.
// traffic   6 / 128 bytes from global memory per multiply-add, and 6 / 8 from shared memory.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds.
// next      raster: which blocks run together, so that they find each other's tiles in the L2 cache.
#include "async.h"

namespace {

template <class T> __global__ void __launch_bounds__(T::threads) async(const Sgemm p)
{
    const Origin tile = tile_origin(p.C, T::BM, T::BN);
    const Own<T> own(threadIdx.x);
    float sum[T::TM][T::TN] = {};
    block_product<T>(p.A, p.B, tile, own, sum);
    store_block<T>(p, tile, own, sum);
}

template <class T> Status launch(const Sgemm *problem, const Launch *where)
{
    return launch_blocks(async<T>, tiles_of(problem->C, T::BM, T::BN), T::threads,
                         sizeof(typename T::Shared), *problem, where);
}

typedef Tiling<128, 256, 32, 64, 64, 8, 16> T;
typedef Tiling<128, 256, 16, 64, 64, 8, 16> Shallow; // where a block has less than 196 KiB

} // namespace

LAUNCHER(async)
{
    return has_shared_memory(where, sizeof(T::Shared)) ? launch<T>(problem, where)
                                                       : launch<Shallow>(problem, where);
}

VARIANT(async, "asynchronous copies to shared memory, a tile ahead", "09_async.cu",
        {T::BM, T::BN, T::BK}, {T::TM, T::TN}, T::threads, sizeof(T::Shared), {8, 0});
