// Not rungs, but the choice of one: for a shape, where its operands lie, and the device. `simt` stays
// on CUDA cores: tma, or streamk, or raster's kernel in many geometries, narrow ones for narrow results and small
// ones for small, and none for tiny; matrix-vector products for vectors; few rows or columns beyond the
// last whole tile as products of their own; and copies of operands where they pay for themselves. `auto`
// takes tensor cores where they take less time, and else what `simt` takes.
#ifndef SGEMM_COUNTED // what is counted is the rung that it chooses
#if defined(__CUDACC__) && defined(SGEMM_HIP)
#include "../ladder/kernel.h"

// AMD's GPUs have neither the asynchronous copies of the tilings nor those tensor cores: as on one of
// NVIDIA's without them, both are the rung before.
extern "C" Launcher launch_warptile_cuda;

LAUNCHER(simt)
{
    return launch_warptile_cuda(problem, where);
}

LAUNCHER(auto)
{
    return launch_warptile_cuda(problem, where);
}
#else
#ifdef __CUDACC__
#include <atomic>
#endif

#include "aligned_copy.h"
#include "cluster_reduce.h"
#include "direct.h"
#include "gemv.h"

/* Computes the largest products, with a fallback of its own where a GPU has no TMA. */
#ifdef __CUDACC__
extern "C" Launcher launch_tma_cuda;
#define LARGEST_PRODUCTS launch_tma_cuda
#else
extern "C" const Variant variant_tma;
#define LARGEST_PRODUCTS variant_tma.launch[DEVICE_CPU]
#endif

namespace {

/* raster's kernel, for a geometry of which a multiprocessor shall have room for several blocks. */
template <class G, int MIN_BLOCKS>
__global__ void __launch_bounds__(G::threads, MIN_BLOCKS) tiled(const Sgemm p)
{
    if constexpr (has_code<G>) {
        TileNumber<G> number(raster_origin(p.C, G::BM, G::BN, blockIdx.x));
        unsigned thread = threadIdx.x;
        float sum[G::TM][G::TN] = {};
        block_product<G, tiles_at_once<G>>(p.A, p.B, number.origin(), ThreadTile<G>(thread), sum);
        // What follows from these is worked out anew: few registers are left to keep it.
        not_known_before(thread);
        store_thread_tile<G>(p, number.origin(), ThreadTile<G>(thread), sum);
    }
}

/* For as many blocks as a multiprocessor of 9.0 has registers for, where it was measured, the compilers
 * for others spill some. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
constexpr int fewer_blocks = 2;
#else
constexpr int fewer_blocks = 0;
#endif

/* As raster's kernel, which it takes the place of. It also stores to a C whose neighbours run down a
 * column. */
template <class G> KERNEL_BODY void multiply_and_store(const Sgemm &p)
{
    TileNumber<G> number(raster_origin(p.C, G::BM, G::BN, blockIdx.x));
    unsigned thread = threadIdx.x;
    float sum[G::TM][G::TN] = {};
    stage_product<G>(p.A, p.B, number.origin(), ThreadTile<G>(thread), sum);
    // What follows from these is worked out anew: few registers are left to keep it.
    not_known_before(thread);
    const Origin tile = number.origin();
    const ThreadTile<G> own(thread);
    if (p.C.col_stride == 1) {
        store_thread_tile<G>(p, tile, own, sum);
    } else {
        store_columns<G>(p, tile, own, sum);
    }
}

template <class G, int MIN_BLOCKS>
__global__ void __launch_bounds__(G::threads, MIN_BLOCKS - fewer_blocks) single_stage(const Sgemm p)
{
    if constexpr (has_code<G>) {
        multiply_and_store<G>(p);
    }
}

/* A block for each tile and part of K, in clusters of so many blocks; or of none: then K is in one part. */
template <class G, int MIN_BLOCKS>
Status launch_geometry(const Sgemm &p, int splits, int cluster, const Launch *where)
{
    constexpr bool joins = JOINS(G::BM, G::BN, G::BK, G::stages, G::slices);
    static_assert(joins || G::slices == 1, "slices are always joined");
    if constexpr (joins) {
        if (cluster > 0) {
            return launch_joined<G, MIN_BLOCKS>(p, splits, cluster, where);
        }
    }
    const int64_t blocks = tiles_of(p.C, G::BM, G::BN);
    if constexpr (G::slices > 1) {
        return launch_joined<G, MIN_BLOCKS>(p, 1, 1, where);
    } else if constexpr (G::stages == 1) {
        return launch_blocks(single_stage<G, MIN_BLOCKS>, spec_of<G>("single_stage"), blocks, p,
                             where);
    } else {
        return launch_blocks(tiled<G, MIN_BLOCKS>, spec_of<G>("tiled"), blocks, p, where);
    }
}

/* Tiles of half the depth where a block has too little shared memory for the whole. Slices of large tiles are for GPUs
 * with clusters alone, which have as much. */
template <Neighbours A, Neighbours B, int BM, int BN, int BK, int WM, int WN, int TM, int TN,
          int SLICES, int STAGES, int MIN_BLOCKS>
Status launch_deepest(const Sgemm &p, int splits, int cluster, const Launch *where)
{
    typedef Known<Geometry<BM, BN, BK, WM, WN, TM, TN, STAGES, SLICES>, A, B> G;
    if constexpr (NEEDS_LARGE_BLOCKS(BM, BN, BK, STAGES) && SLICES == 1) {
        if (cluster == 0 && !has_shared_memory(where, spec_of<G>("tiled"))) {
            typedef Known<Geometry<BM, BN, BK / 2, WM, WN, TM, TN, STAGES, SLICES>, A, B> Shallow;
            return launch_geometry<Shallow, MIN_BLOCKS>(p, splits, cluster, where);
        }
    }
    return launch_geometry<G, MIN_BLOCKS>(p, splits, cluster, where);
}

typedef Status LaunchTiling(const Sgemm &, int splits, int cluster, const Launch *);

/* What is launched for operands that lie so: by kernels of has_code. */
struct Launches {
    LaunchTiling *of_tiling[TILING_COUNT];
};

#define TILING(BM, BN, BK, WM, WN, TM, TN, SLICES, STAGES, MIN_BLOCKS, ...)                        \
    launch_deepest<A, B, BM, BN, BK, WM, WN, TM, TN, SLICES, STAGES, MIN_BLOCKS>,
template <Neighbours A, Neighbours B> constexpr Launches launches = {{TILINGS(TILING)}};
#undef TILING

typedef Known<Geometry<128, 256, 32, 64, 64, 8, 16>, EITHER_WAY, EITHER_WAY>
    Whole; // the first tiling

inline const Launches &launches_for(const Sgemm &p, const Launch *where)
{
#ifdef __NVCC__
    typedef void Kernel(JoinedProduct);
    if (version_of_code<Kernel, joined<Whole, 1, ONE_CLUSTER>>(where->device) == 90) {
        const bool along_A = p.A.col_stride == 1, along_B = p.B.row_stride == 1;
        return along_A ? (along_B ? launches<ALONG_DEPTH, ALONG_DEPTH>
                                  : launches<ALONG_DEPTH, ACROSS_LINES>)
                       : (along_B ? launches<ACROSS_LINES, ALONG_DEPTH>
                                  : launches<ACROSS_LINES, ACROSS_LINES>);
    }
#else
    (void)p;
    (void)where;
#endif
    return launches<EITHER_WAY, EITHER_WAY>;
}

/* A plan but for its copies. */
Status launch_tiled(const Sgemm *problem, const Launch *where, const Plan *plan)
{
    if (plan->tiling == DIRECT) {
        return launch_direct(problem, where);
    }
    if (plan->tiling == STREAMK) {
        return LARGEST_PRODUCTS(problem, where);
    }
    Sgemm p = *problem;
    if (plan->swapped) {
        p.A = transposed(problem->B);
        p.B = transposed(problem->A);
        p.C = transposed(problem->C);
    }
    return plan->tiling == GEMV ? launch_gemv(p, plan->splits, plan->width, where)
                                : launches_for(p, where).of_tiling[plan->tiling](
                                      p, plan->splits, plan->cluster, where);
}

Status launch_plan(const Sgemm &problem, const Launch *where, const Plan &plan)
{
    return launch_with_copies(
        &problem, plan.copies_A, plan.copies_B, where,
        [=](const Sgemm *copied) { return launch_tiled(copied, where, &plan); });
}

/* Neither the rests are all of C, nor is what they leave empty. */
Status launch_with_rests(const Sgemm *problem, const Launch *where, const PlanWithRests *plan)
{
    const int64_t M = problem->C.rows - plan->rows, N = problem->C.cols - plan->cols;
    const Sgemm whole = plan_block(problem, 0, M, 0, N);
    const Sgemm rows = plan_block(problem, M, plan->rows, 0, problem->C.cols);
    const Sgemm cols = plan_block(problem, 0, M, N, plan->cols);
    Status status = launch_plan(whole, where, plan->most);
    if (status.code == STATUS_OK && plan->rows > 0) {
        status = launch_plan(rows, where, plan->of_rows);
    }
    if (status.code == STATUS_OK && plan->cols > 0) {
        status = launch_plan(cols, where, plan->of_cols);
    }
    return status;
}

} // namespace

#if defined(__CUDACC__)
extern "C" Status launch_plan_cuda(const Sgemm *problem, const Launch *where,
                                   const PlanWithRests *plan)
{
    return launch_with_rests(problem, where, plan);
}
#elif !defined(SGEMM_FUSED)
extern "C" Status launch_plan_cpu(const Sgemm *problem, const Launch *where,
                                  const PlanWithRests *plan)
{
    return launch_with_rests(problem, where, plan);
}
#endif

/* What plans are estimated with on a device, of whose model a GPU is asked once. */
static const PlanConstants *constants_on(const Launch *where)
{
#ifdef __CUDACC__
    constexpr int most = 64;
    static std::atomic<const PlanConstants *> known[most];
    const PlanConstants *constants = where->device < most ? known[where->device].load() : nullptr;
    if (!constants) {
        cudaDeviceProp properties;
        if (cudaGetDeviceProperties(&properties, where->device) != cudaSuccess) {
            cudaGetLastError(); // what is wrong with the device, the launch will say
            return &plan_fitted;
        }
        constants = plan_constants(properties.name);
        if (where->device < most) {
            known[where->device] = constants;
        }
    }
    return constants;
#else
    (void)where;
    return &plan_fitted;
#endif
}

/* Whether plans may have clusters: of blocks with as much shared memory as the largest tiling takes there, and by
 * machine code that knows them. The CPU device has them. */
#ifdef __CUDACC__
extern "C" bool has_clusters_cuda(const Launch *where)
{
    typedef void Kernel(JoinedProduct);
    return version_of_code<Kernel, joined<Whole, 1, ONE_CLUSTER>>(where->device) > 0 &&
           has_shared_memory(where, spec_of_joined<Whole>(1));
}
#define HAS_CLUSTERS(where) has_clusters_cuda(where)
#else
#define HAS_CLUSTERS(where) true
#endif

static Status launch_planned(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_of(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const PlanWithRests plan =
        plan_with_rests(problem, multiprocessors, HAS_CLUSTERS(where), constants_on(where));
    return launch_with_rests(problem, where, &plan);
}

#ifdef __CUDACC__
extern "C" Launcher launch_warptile_cuda;

/* Where asynchronous copies are missing, the rung before them. */
static Status launch(const Sgemm *problem, const Launch *where)
{
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, where->device);
    return (major < 8 ? launch_warptile_cuda : launch_planned)(problem, where);
}
#else
extern "C" const Variant variant_coalesced, variant_tile2d;
static Launcher *const launch = launch_planned;
#endif

static Status on_cuda_cores(const Sgemm *problem, const Launch *where)
{
#ifndef __CUDACC__
    // The rung that takes a CPU the least time, unless it is to do as a GPU does. A tile would be
    // computed as a whole, whatever part of it C fills; the bits are the same.
    int multiprocessors;
    const Status status = multiprocessors_of(where, &multiprocessors);
    if (status.code != STATUS_OK || multiprocessors == 0) {
        const Variant *const rung = where->brief ? &variant_coalesced : &variant_tile2d;
        return status.code != STATUS_OK ? status : rung->launch[DEVICE_CPU](problem, where);
    }
#endif
    return launch(problem, where);
}

/* How many multiprocessors a device has whose tensor cores were found to compute as the proof of the
 * bound has it, docs/tensor_cores.md; 0 for another. The CPU device computes as they do, but takes
 * many times as long: it chooses them only where it is to do as such a GPU does. */
static Status multiprocessors_with_known_tensor_cores(const Launch *where, int *count)
{
#ifdef __CUDACC__
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, where->device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, where->device);
    if (major != 9 || minor != 0) {
        *count = 0;
        return status_ok();
    }
#endif
    return multiprocessors_of(where, count);
}

/* The rung that `auto` takes for tensor cores. It takes its memory before it writes anything. */
#ifdef __CUDACC__
extern "C" Launcher launch_waves_cuda;
#define ON_TENSOR_CORES launch_waves_cuda
#else
extern "C" const Variant variant_waves;
#define ON_TENSOR_CORES variant_waves.launch[DEVICE_CPU]
#endif

LAUNCHER(simt)
{
    return on_cuda_cores(problem, where);
}

LAUNCHER(auto)
{
    int multiprocessors;
    Status status = multiprocessors_with_known_tensor_cores(where, &multiprocessors);
    if (status.code != STATUS_OK || multiprocessors == 0) {
        return status.code != STATUS_OK ? status : on_cuda_cores(problem, where);
    }
    const PlanWithRests plan =
        plan_with_rests(problem, multiprocessors, HAS_CLUSTERS(where), constants_on(where));
    if (plan_loses_to_tensor_cores(plan.cycles, problem, multiprocessors)) {
        status = ON_TENSOR_CORES(problem, where);
        if (status.code != STATUS_OUT_OF_MEMORY) { // for halves: without them there may be enough
            return status;
        }
    }
    return launch_with_rests(problem, where, &plan);
}

VARIANT(simt, "on CUDA cores, with the tiling that suits the shape and the device", nullptr,
        KernelSpec{}, {7, 5});
VARIANT(auto, "on tensor cores where that takes less time, else as simt", nullptr, KernelSpec{},
        {7, 5});
#endif
#endif
