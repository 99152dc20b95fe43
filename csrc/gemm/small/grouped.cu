// Many products of different shapes in one launch: each block finds its product, and computes a
// tile of it as the kernels for one product do.
#include "grouped.h"

#include "../kernel/kernel.h"

#ifndef SGEMM_TRACED // the traced build counts the rungs
#include "../simt/cluster_reduce.h"

#ifndef __CUDACC__
#define __grid_constant__ /* the parameter is read in place, not copied for each thread */
#endif

namespace {

/* The product that a block computes a tile of. */
KERNEL_BODY unsigned product_of(const Group &group, unsigned block)
{
    unsigned low = 0, high = static_cast<unsigned>(group.count);
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        const bool is_before = block < group.first[middle];
        low = is_before ? low : middle;
        high = is_before ? middle : high;
    }
    return low;
}

template <class G, int MIN_BLOCKS>
__global__ void __launch_bounds__(G::threads, min_blocks<MIN_BLOCKS>)
    grouped(const __grid_constant__ Group group)
{
#ifdef __CUDA_ARCH__
    if (__CUDA_ARCH__ < 800) { // never launched: the device has no plans
        __trap();
        return;
    }
#endif
    unsigned number = product_of(group, blockIdx.x);
    const Sgemm &p = group.problems[number];
    TileNumber<G> tile(raster_origin(p.C, G::BM, G::BN, blockIdx.x - group.first[number]));
    float sum[G::TM][G::TN] = {};
    constexpr int ahead = tiles_ahead<G>, in_flight = tiles_in_flight<G>;
    block_product<G, (in_flight < ahead ? ahead : in_flight), ahead>(
        p.A, p.B, tile.origin(), ThreadTile<G>(threadIdx.x), sum);
    unsigned thread = threadIdx.x;
    recompute_from(thread);
    recompute_from(number);
    const Sgemm &same = group.problems[number];
    const ThreadTile<G> place(thread);
    if constexpr (G::slices == 1) {
        store_thread_tile<G>(same, tile.origin(), place, sum);
    } else {
        const Part<G> &own = leave_sums<G>(thread, place, sum);
        __syncthreads();
        add_and_store<G, G::slices, true>(
            same, tile.origin(), own,
            {static_cast<int>(thread / 32), G::threads / 32, static_cast<int>(thread % 32)});
    }
}

#define SIZES(BM, BN, BK, WM, WN, TM, TN, SLICES, BLOCKS, SLOTS)                                   \
    {BM, BN, BK, WM, WN, TM, TN, SLICES, BLOCKS},
constexpr int sizes[TILE_COUNT][9] = {TILES(SIZES)};
#undef SIZES

template <int ROW, bool A_K_MAJOR, bool B_K_MAJOR>
Status launch_row(const Group &group, int64_t blocks, const Launch *where)
{
    constexpr auto &row = sizes[ROW];
    typedef Geometry<row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], A_K_MAJOR,
                     B_K_MAJOR>
        G;
    return launch_blocks(grouped<G, row[8]>, spec_of<G>("grouped"), blocks, group, where);
}

template <bool A_K_MAJOR, bool B_K_MAJOR>
Status launch_layout(const Group &group, int64_t blocks, int kernel, const Launch *where)
{
    switch (kernel) {
#define CASE(row)                                                                                  \
    case row:                                                                                      \
        return launch_row<row, A_K_MAJOR, B_K_MAJOR>(group, blocks, where);
        GROUPED_TILES(CASE)
#undef CASE
    }
    return status_error(STATUS_INVALID, "configuration %d computes one product", kernel);
}

} // namespace

extern "C" Status launch_group(const Group &group, int64_t blocks, int kernel, const Launch *where)
{
    const Sgemm &first = group.problems[0];
    const bool A_is_k_major = first.A.col_stride == 1, B_is_k_major = first.B.row_stride == 1;
    const auto of_layout =
        A_is_k_major ? (B_is_k_major ? launch_layout<true, true> : launch_layout<true, false>)
                     : (B_is_k_major ? launch_layout<false, true> : launch_layout<false, false>);
    return of_layout(group, blocks, kernel, where);
}
#endif
