// idea      choose which blocks run together: bands of block rows, column by column, so that the
//           tiles that they share come from memory once.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a pipeline of four stages.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, fewer of them from memory, and 6 / 8
//           from shared memory.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds.
// next      splitk: several blocks for one tile of C, where there are too few tiles for the GPU.
#include "09_async.cu"

constexpr int band_rows = 8;

/* The first row and column of the tile of C with this number. Tiles are numbered in bands of rows,
 * from top to bottom and column by column in each: those that run at the same time then form nearly
 * a square, and read fewer rows of A and columns of B between them than a row of tiles would. Not BY_FLOATS
 * where a kernel has no registers left for that. */
template <bool BY_FLOATS = true>
static __device__ __forceinline__ Origin raster_origin(const Matrix &C, int block_rows,
                                                       int block_cols, unsigned number)
{
    const auto divide = [](unsigned count, unsigned by) {
        return BY_FLOATS ? divided(count, by) : Division<unsigned>{count / by, count % by};
    };
    const unsigned down = static_cast<unsigned>((C.rows + block_rows - 1) / block_rows);
    const unsigned across = static_cast<unsigned>((C.cols + block_cols - 1) / block_cols);
    const auto [band, in_band] = divide(number, band_rows * across);
    const unsigned left = down - band * band_rows, rows = left < band_rows ? left : band_rows;
    const unsigned col = rows == band_rows ? in_band / band_rows : divide(in_band, rows).quotient;
    const unsigned row = in_band - col * rows;
    return {static_cast<int64_t>(band * band_rows + row) * block_rows,
            static_cast<int64_t>(col) * block_cols};
}

#if THIS_RUNG
namespace {

template <class G> __global__ void __launch_bounds__(G::threads) raster(const Sgemm p)
{
    const Origin tile = raster_origin(p.C, G::BM, G::BN, blockIdx.x);
    const ThreadTile<G> own(threadIdx.x);
    float sum[G::TM][G::TN] = {};
    block_product<G>(p.A, p.B, tile, own, sum);
    store_thread_tile<G>(p, tile, own, sum);
}

typedef Geometry<128, 256, 32, 64, 64, 8, 16> Deep;
typedef Geometry<128, 256, 16, 64, 64, 8, 16> Shallow; // where a block has less than 196 KiB
template <class G> constexpr KernelSpec spec = spec_of<G>("raster");

} // namespace

LAUNCHER(raster)
{
    return has_shared_memory(where, spec<Deep>)
               ? launch_tiles(raster<Deep>, spec<Deep>, problem, where)
               : launch_tiles(raster<Shallow>, spec<Shallow>, problem, where);
}

VARIANT(raster, "blocks in bands, which share tiles in the L2 cache", "10_raster.cu", spec<Deep>,
        {8, 0});
#endif
