// Not a rung, but the choice of one: for a shape, where its operands lie, and the device. splitk's
// kernel in many geometries, narrow ones for narrow results and small ones for small; matrix-vector
// products for vectors; and a copy of B where that pays for itself.
#ifndef SGEMM_COUNTED // what is counted is the rung that it chooses
#include "../../core/plan.h"
#include "../11_splitk.cu"
#include "gemv.h"
#include "row_major_b.h"

namespace {

template <class G, int MIN_BLOCKS>
Status launch_geometry(const SplitProduct &s, const Launch *where)
{
    return launch_blocks(splitk<G, MIN_BLOCKS>, spec_of<G>("splitk"),
                         tiles_of(s.p.C, G::BM, G::BN) * s.splits, s, where);
}

/* Tiles of half the depth where a block has too little shared memory for the whole. */
template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int MIN_BLOCKS>
Status launch_deepest(const SplitProduct &s, const Launch *where)
{
    typedef Geometry<BM, BN, BK, WM, WN, TM, TN> G;
    if constexpr (sizeof(typename G::Shared) > 99 * 1024) { // what each GPU from 8.0 on has
        if (!has_shared_memory(where, spec_of<G>("splitk"))) {
            return launch_geometry<Geometry<BM, BN, BK / 2, WM, WN, TM, TN>, MIN_BLOCKS>(s, where);
        }
    }
    return launch_geometry<G, MIN_BLOCKS>(s, where);
}

typedef Status LaunchTiling(const SplitProduct &, const Launch *);
#define TILING(BM, BN, BK, WM, WN, TM, TN, MIN_BLOCKS, SPEED)                                      \
    launch_deepest<BM, BN, BK, WM, WN, TM, TN, MIN_BLOCKS>,
LaunchTiling *const launch_tiling[] = {TILINGS(TILING)};
#undef TILING

Status launch_plan(const Sgemm *problem, const Launch *where, const Plan *plan)
{
    SplitProduct product = {*problem, plan->splits, 1, 0, nullptr};
    if (plan->swapped) {
        product.p.A = transposed(problem->B);
        product.p.B = transposed(problem->A);
        product.p.C = transposed(problem->C);
    }
    const auto launch = [=](const SplitProduct &s) {
        return plan->tiling == GEMV ? launch_gemv(s, plan->width, where)
                                    : launch_tiling[plan->tiling](s, where);
    };
    /* A C that is transposed is none that a tiling can store to. */
    const bool in_place = plan->splits == 1 && (plan->tiling == GEMV || !plan->swapped);
    return in_place ? launch(product) : launch_and_reduce(product, where, launch);
}

} // namespace

#ifdef __CUDACC__
extern "C" Status launch_plan_cuda(const Sgemm *problem, const Launch *where, const Plan *plan)
{
    return launch_plan(problem, where, plan);
}

extern "C" Launcher launch_warptile_cuda;

/* A plan for splitk, which without splitting is raster; where asynchronous copies are missing, the
 * rung before them. */
static Status launch(const Sgemm *problem, const Launch *where)
{
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, where->device);
    if (major < 8) {
        return launch_warptile_cuda(problem, where);
    }
    const Plan plan = plan_any(problem, multiprocessors_of(where));
    return launch_plan(problem, where, &plan);
}

LAUNCHER(auto)
{
    return plan_copies_B(problem) ? launch_with_copy(problem, where, launch)
                                  : launch(problem, where);
}
#else
extern "C" Status launch_plan_cpu(const Sgemm *problem, const Launch *where, const Plan *plan)
{
    return launch_plan(problem, where, plan);
}

extern "C" const Variant variant_tile2d;

/* The rung that takes a CPU the least time. */
LAUNCHER(auto)
{
    return variant_tile2d.launch[DEVICE_CPU](problem, where);
}
#endif

VARIANT(auto, "the rung and the tiling that suit the shape and the device", nullptr, KernelSpec{},
        {7, 5});
#endif
