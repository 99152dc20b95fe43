// idea      where C has fewer tiles than the GPU has room for, divide K too: several blocks for one
//           tile, each with a part of K, and a second kernel that adds the parts.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a pipeline of four stages.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, 6 / 8 from shared memory, and 8 for
//           each result and part of K.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds; the parts' traffic where
//           K is short.
// next      streamk: shares of K that end where tiles do not, for no more blocks than run at once.
#include "../engine/plan.h"
#include "10_raster.cu"
#include "11_reduce.h"

namespace {

/* Where one part of K is stored: where all of it is, or with the other parts. */
static __device__ __forceinline__ Sgemm to_part(const SplitProduct &s, unsigned part)
{
    Sgemm p = s.p;
    if (s.partials) {
        // Padding and all, so that whole quads can be added.
        p.C = {s.partials + part * p.C.rows * s.ld, p.C.rows, s.ld, s.ld, 1};
        p.alpha = 1.0f;
        p.beta = 0.0f;
    }
    return p;
}

/* Which part of K a block has, and of which of so many tiles. */
struct Share {
    unsigned part, tile;
};

static __device__ __forceinline__ Share share_of(const SplitProduct &s, unsigned block,
                                                 unsigned tiles)
{
    const unsigned part = s.splits == 1 ? 0 : block / tiles;
    return {part, block - part * tiles};
}

/* The product that is one part of K, in tiles of such depth. Parts are whole tiles deep, but for the
 * first, which takes what K leaves over. */
static __device__ __forceinline__ Sgemm part_of(const SplitProduct &s, unsigned part, int depth)
{
    if (s.splits == 1) {
        return to_part(s, 0);
    }
    const int64_t K = s.p.A.cols, steps = (K + depth - 1) / depth;
    const int64_t first = steps * part / s.splits, last = steps * (part + 1) / s.splits;
    const int64_t begin = first == 0 ? 0 : K - (steps - first) * depth;
    const int64_t end = last == 0 ? 0 : K - (steps - last) * depth;
    Sgemm p = to_part(s, part);
    p.A.data = address(p.A, 0, begin);
    p.B.data = address(p.B, begin, 0);
    p.A.cols = p.B.rows = end - begin;
    return p;
}

/* One block for each tile of C and part of K. */
template <class G> __global__ void __launch_bounds__(G::threads) splitk(const SplitProduct s)
{
    const unsigned tiles = static_cast<unsigned>(tiles_of(s.p.C, G::BM, G::BN));
    const Share share = share_of(s, blockIdx.x, tiles);
    const Origin tile = raster_origin(s.p.C, G::BM, G::BN, share.tile);
    const Sgemm p = part_of(s, share.part, G::BK);
    const ThreadTile<G> own(threadIdx.x);
    float sum[G::TM][G::TN] = {};
    block_product<G>(p.A, p.B, tile, own, sum);
    let_next_kernel_begin();
    store_thread_tile<G>(p, tile, own, sum);
}

} // namespace

#if THIS_RUNG
namespace {

typedef Geometry<128, 256, 32, 64, 64, 8, 16> Deep;
typedef Geometry<128, 256, 16, 64, 64, 8, 16> Shallow; // where a block has less than 196 KiB
template <class G> constexpr KernelSpec spec = spec_of<G>("splitk");

template <class G> Status launch_parts(const SplitProduct &product, const Launch *where)
{
    const auto launch = [=](const SplitProduct &s) {
        return launch_blocks(splitk<G>, spec<G>, tiles_of(s.p.C, G::BM, G::BN) * s.splits, s,
                             where);
    };
    return product.splits == 1 ? launch(product) : launch_and_reduce(product, where, launch);
}

} // namespace

LAUNCHER(splitk)
{
    int splits = 1; // where accesses are counted: one tile stands for as many as there are
#ifndef SGEMM_COUNTED
    int multiprocessors;
    const Status status = multiprocessors_of(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    splits = plan_splits(problem, multiprocessors ? multiprocessors : 8);
#endif
    const SplitProduct product = {*problem, splits, 1, 0, nullptr};
    return has_shared_memory(where, spec<Deep>) ? launch_parts<Deep>(product, where)
                                                : launch_parts<Shallow>(product, where);
}

VARIANT(splitk, "several blocks for one tile, each with a part of K", "11_splitk.cu", spec<Deep>,
        {8, 0});
#endif
