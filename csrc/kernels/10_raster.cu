// idea      choose which blocks run together: bands of block rows, column by column, so that the
//           tiles that they share come from memory once.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a ring of four stages.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, fewer of them from memory, and 6 / 8
//           from shared memory.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds.
// next      splitk: several blocks for one tile of C, where there are too few tiles for the GPU.
#include "async.h"
#include "by_rows.h"

namespace {

template <class T> __global__ void __launch_bounds__(T::threads) raster(const Sgemm p)
{
    const Origin tile = raster_origin(p.C, T::BM, T::BN, blockIdx.x);
    const Own<T> own(threadIdx.x);
    float sum[T::TM][T::TN] = {};
    block_product<T>(p.A, p.B, tile, own, sum);
    store_block<T>(p, tile, own, sum);
}

template <class T> Status launch_tiling(const Sgemm *problem, const Launch *where)
{
    return launch_blocks(raster<T>, tiles_of(problem->C, T::BM, T::BN), T::threads,
                         sizeof(typename T::Shared), *problem, where);
}

typedef Tiling<128, 256, 32, 64, 64, 8, 16> T;
typedef Tiling<128, 256, 16, 64, 64, 8, 16> Shallow; // where a block has less than 196 KiB

Status launch(const Sgemm *problem, const Launch *where)
{
    return has_shared_memory(where, sizeof(T::Shared)) ? launch_tiling<T>(problem, where)
                                                       : launch_tiling<Shallow>(problem, where);
}

} // namespace

LAUNCHER(raster)
{
    return launch_by_rows(problem, where, launch);
}

VARIANT(raster, "blocks in bands, which share tiles in the L2 cache", "10_raster.cu",
        {T::BM, T::BN, T::BK}, {T::TM, T::TN}, T::threads, sizeof(T::Shared), {8, 0});
