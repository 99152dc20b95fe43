// idea      split A as it is multiplied. Loads A's tiles in float32; a warpgroup splits its rows in
//           registers, from where wgmma reads them. No kernel writes A's fp16 pairs. Thin products,
//           whose A is far larger than B, read it once. Few tiles, or few in the last wave: divide
//           their K, as in splitk. Many tiles: a block loads the next one while it stores the last.
// block     128 x 128 or 128 x 64 results by two consumer warpgroups, and a producer warpgroup;
//           tiles 32 deep, in six or eight stages; a thread has 2 x 32 or 2 x 16 results.
// traffic   8 / 128 bytes from the L2 cache per multiply-add. From shared memory 4 / 128 bytes of
//           A, which are read once, and 3 / 64 times 2 bytes of B.
// bound by  memory if C has 64 columns, tensor cores from 256 on.
// next      nothing yet.
#include "fused_launch.h"
#include "fused_tiles.h"
#include "ragged_launch.h"

namespace {

/* Two consumer warpgroups. */
template <class GROUP, int STAGES, bool MN_MAJOR>
struct FusedTile : SplitTile<GROUP, STAGES, MN_MAJOR> {
    static constexpr KernelSpec spec()
    {
        return spec_of_tile<FusedTile>("fused", FusedTile::block_threads);
    }
};

/* The producer thread. It is ahead by all stages, so the next tile, if any, is loaded while this
 * one is checked and stored. */
template <class T, class Q> KERNEL_BODY void load_chunks(const Q &q, typename T::Shared &shared)
{
    RingPosition<T::stages> to;
    UNROLL(1)
    for (unsigned number = blockIdx.x; number < q.work_items; number += q.blocks) {
        const typename Q::Unit work(q, number);
        load_work<T>(q, work, number == blockIdx.x, to, shared);
    }
}

/* The consumer threads of a warpgroup. */
template <class T, class Q> KERNEL_BODY void multiply_chunks(const Q &q, typename T::Shared &shared)
{
    typedef typename T::Group Group;
    const int group = threadIdx.x / Group::threads, thread = threadIdx.x % Group::threads;
    const int row = threadIdx.x / 32 * Group::WM + EvenRowsFirst::row_of_lane(threadIdx.x % 32);
    Checking<Group> &check = shared.check[group];
    RingPosition<T::stages> first, ahead; // of the K blocks multiplied and read next
    UNROLL(1)
    for (unsigned number = blockIdx.x; number < q.work_items; number += q.blocks) {
        const typename Q::Unit work(q, number);
        float sum[1][Group::NI][4] = {};
        RowOfA rows[2] = {};
        multiply_work<T>(work, shared, row, first, ahead, rows, sum, [](int) {});
        if (number + q.blocks >= q.work_items) { // only the last results are left to store
            griddep_launch_dependents();
        }
        const Fp16Product &product = product_of(q, work);
        CheckedTile<Group, EvenRowsFirst> own(product, work.tile * T::groups + group, work.matrix,
                                              thread);
        if (work.divided) {
            store_slice<Group>(q, work.part, rows, sum, own);
        } else {
            scale_rows<Group>(rows, q.chunk_share, sum, own, check);
            own.store_passing(sum, true, check.failing, check.staging);
        }
    }
}

template <class T, class Q>
__global__ void __launch_bounds__(T::block_threads, 1) fused(const __grid_constant__ Q q)
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::stages; ++i) {
            mbarrier_init(shared.full + i, 1);
            mbarrier_init(shared.empty + i, T::threads / 32);
        }
        fence_proxy_async();
    }
    __syncthreads();
    if (threadIdx.x < T::threads) {
        setmaxnreg_inc<232>();
        griddep_wait();
        multiply_chunks<T>(q, shared);
    } else {
        setmaxnreg_dec<40>();
        if (threadIdx.x == T::threads) {
            load_chunks<T>(q, shared);
        }
    }
}

template <bool MN_MAJOR, bool SYMMETRIC> struct Tiles {
    typedef FusedTile<GroupTile<FUSED_NARROW, SYMMETRIC>, 8, MN_MAJOR> Narrow;
    typedef FusedTile<GroupTile<FUSED_WIDE, SYMMETRIC>, 6, MN_MAJOR> Wide;
};

typedef Tiles<false, false>::Wide Usual;

} // namespace

LAUNCHER(fused)
{
    Launcher *const launch =
        where->symmetric ? launch_fused<Tiles, true> : launch_fused<Tiles, false>;
    return launch_unless_short(launch, problem, where, WGMMA_MIN_K);
}

#if !defined(SGEMM_TRACED) && !defined(SGEMM_CUSTOM)
namespace {

template <bool MN_MAJOR> struct RaggedTiles {
    typedef FusedTile<RaggedTile<FUSED_NARROW>, 8, MN_MAJOR> Narrow;
    typedef FusedTile<RaggedTile<FUSED_WIDE>, 6, MN_MAJOR> Wide;
};

} // namespace

extern "C" Status launch_fused_groups(const FusedGroups *groups, const Launch *where)
{
    return launch_ragged<RaggedTiles>(*groups, where);
}
#endif

ARCHITECTURE_SPECIFIC_VARIANT(fused, "A stays float32 until a warpgroup splits it in registers",
                              "fused.cu", Usual::spec(), {9, 0});
