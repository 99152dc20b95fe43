// idea      where C has fewer tiles than the GPU has room for, divide K too: several blocks for one
//           tile, each with a part of K, and a second kernel that adds the parts.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a ring of four stages; `auto` also takes the smaller tilings of plan.h,
//           and gemv.h for vectors.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, 6 / 8 from shared memory, and 8 for
//           each result and part of K.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds; the parts' traffic where
//           K is short.
// next      auto: the tiling and the number of parts that suit the shape.
#include "../core/plan.h"
#include "async.h"
#include "by_rows.h"
#include "gemv.h"
#include "split.h"

namespace {

template <class T> __global__ void __launch_bounds__(T::threads, T::resident) splitk(const Split s)
{
    const unsigned tiles = static_cast<unsigned>(tiles_of(s.p.C, T::BM, T::BN));
    const unsigned part = blockIdx.x / tiles;
    const Origin tile = raster_origin(s.p.C, T::BM, T::BN, blockIdx.x % tiles);

    // Parts are whole tiles deep, but for the first, which takes what K leaves over.
    const int64_t K = s.p.A.cols, steps = (K + T::BK - 1) / T::BK;
    const int64_t first = steps * part / s.splits, last = steps * (part + 1) / s.splits;
    const int64_t begin = first == 0 ? 0 : K - (steps - first) * T::BK;
    const int64_t end = last == 0 ? 0 : K - (steps - last) * T::BK;
    Sgemm p = s.p;
    p.A.data = place(p.A, 0, begin);
    p.B.data = place(p.B, begin, 0);
    p.A.cols = p.B.rows = end - begin;
    if (s.parts) {
        // Padding and all, so that whole quads can be added.
        p.C = {s.parts + part * p.C.rows * s.ld, p.C.rows, s.ld, s.ld, 1};
        p.alpha = 1.0f;
        p.beta = 0.0f;
    }

    const Own<T> own(threadIdx.x);
    float sum[T::TM][T::TN] = {};
    block_product<T>(p.A, p.B, tile, own, sum);
    let_adding_begin();
    store_block<T>(p, tile, own, sum);
}

/* ------------------------------------------------------------------ the tilings */

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int RESIDENT>
struct Resident : Tiling<BM, BN, BK, WM, WN, TM, TN> {
    static constexpr int resident = RESIDENT; // blocks that a multiprocessor shall have room for
};

template <class T> Status launch_splits(const Split &s, const Launch *where)
{
    return launch_blocks(splitk<T>, tiles_of(s.p.C, T::BM, T::BN) * s.splits, T::threads,
                         sizeof(typename T::Shared), s, where);
}

/* Tiles of half the depth where a block has too little shared memory for the whole. */
template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int RESIDENT>
Status launch_deepest(const Split &s, const Launch *where)
{
    typedef Resident<BM, BN, BK, WM, WN, TM, TN, RESIDENT> T;
    if constexpr (sizeof(typename T::Shared) > 99 * 1024) { // what each GPU from 8.0 on has
        if (!has_shared_memory(where, sizeof(typename T::Shared))) {
            return launch_splits<Resident<BM, BN, BK / 2, WM, WN, TM, TN, RESIDENT>>(s, where);
        }
    }
    return launch_splits<T>(s, where);
}

typedef Status LaunchSplits(const Split &, const Launch *);
#define TILING(BM, BN, BK, WM, WN, TM, TN, RESIDENT, SPEED)                                        \
    launch_deepest<BM, BN, BK, WM, WN, TM, TN, RESIDENT>,
LaunchSplits *const launch_tiling[] = {TILINGS(TILING)};
#undef TILING

Status launch_plan(const Sgemm *problem, const Launch *where, const Plan *plan)
{
    Split s = {*problem, plan->splits, 1, plan->width, 0, nullptr};
    if (plan->swapped) {
        s.p.A = transposed(problem->B);
        s.p.B = transposed(problem->A);
        s.p.C = transposed(problem->C);
    }
    LaunchSplits *const launch = plan->tiling == GEMV ? launch_gemv : launch_tiling[plan->tiling];
    if (plan->splits == 1 && (plan->tiling == GEMV || !plan->swapped)) {
        return launch(s, where);
    }
    s.ld = (s.p.C.cols + 3) / 4 * 4;
    Status status = take_parts(&s, where);
    if (status.code != STATUS_OK) {
        return status;
    }
    status = launch(s, where);
    if (status.code == STATUS_OK) {
        status = launch_adding(s, where);
    }
    scratch_give(s.parts, where);
    return status;
}

typedef Tiling<128, 256, 32, 64, 64, 8, 16> T; // the first of TILINGS

} // namespace

#if defined(__CUDACC__)
extern "C" Status launch_plan_cuda(const Sgemm *problem, const Launch *where, const Plan *plan)
{
    return launch_plan(problem, where, plan);
}
#elif !defined(SGEMM_COUNTED)
extern "C" Status launch_plan_cpu(const Sgemm *problem, const Launch *where, const Plan *plan)
{
    return launch_plan(problem, where, plan);
}
#endif

static Status launch(const Sgemm *problem, const Launch *where)
{
#ifdef SGEMM_COUNTED
    const Plan plan = {0, 1, false,
                       0}; // the one tile that is counted stands for as many as there are
#else
    const Plan plan = plan_splits(problem, multiprocessors_of(where));
#endif
    return launch_plan(problem, where, &plan);
}

LAUNCHER(splitk)
{
    return launch_by_rows(problem, where, launch);
}

VARIANT(splitk, "several blocks for one tile, each with a part of K", "11_splitk.cu",
        {T::BM, T::BN, T::BK}, {T::TM, T::TN}, T::threads, sizeof(T::Shared), {8, 0});
