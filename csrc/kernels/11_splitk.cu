// idea      where C has fewer tiles than the GPU has room for, divide K too: several blocks for one
//           tile, each with a part of K, and a second kernel that adds the parts.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a ring of four stages; `auto` also takes the smaller tilings of plan.h.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, 6 / 8 from shared memory, and 8 for
//           each result and part of K.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds; the parts' traffic where
//           K is short.
// next      auto: the tiling and the number of parts that suit the shape.
#include <stdlib.h>

#include "../plan.h"
#include "async.h"

namespace {

/* A product whose tiles of C are computed in parts. */
struct Split {
    Sgemm p;
    int splits;
    int adders; // threads that add the parts of a quad
    int64_t ld; // of one part's results
    float
        *parts; // splits matrices of the shape of C, one after the other; NULL if C takes the sums
};

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
    store_block<T>(p, tile, own, sum);
}

/* ------------------------------------------------------------------ adding the parts */

constexpr int adding_threads = 256;

/* Each quad of results is added by s.adders threads, which divide adding_threads: each takes every
 * s.adders-th part, and the first adds what they have, always in the same order. */
__global__ void __launch_bounds__(adding_threads) add_parts(const Split s)
{
    __shared__ float4 sums[adding_threads];
    const int side = adding_threads / s.adders; // quads of this block
    const int x = threadIdx.x % side, y = threadIdx.x / side;
    const int64_t quads = s.ld / 4, size = s.p.C.rows * s.ld;
    const int64_t quad = static_cast<int64_t>(blockIdx.x) * side + x;
    const bool there = quad < s.p.C.rows * quads;

    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (there) {
        const float *from = s.parts + y * size + 4 * quad;
        UNROLL(4)
        for (int part = y; part < s.splits; part += s.adders) {
            const float4 more = *reinterpret_cast<const float4 *>(from);
            sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
            from += s.adders * size;
        }
    }
    if (s.adders > 1) {
        sums[threadIdx.x] = sum;
        __syncthreads();
    }
    if (!there || y > 0) {
        return;
    }
    for (int other = 1; other < s.adders; ++other) {
        const float4 more = sums[other * side + x];
        sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    const int64_t row = quad / quads, col = quad % quads * 4;
    const float of_quad[4] = {sum.x, sum.y, sum.z, sum.w};
    for (int i = 0; i < 4 && col + i < s.p.C.cols; ++i) {
        float *const c = place(s.p.C, row, col + i);
        *c = scaled(s.p, of_quad[i], s.p.beta == 0.0f ? 0.0f : *c);
    }
}

Status launch_adding(Split s, const Launch *where)
{
    s.adders = s.splits < 32 ? 1 : 8;
    const int64_t quads = s.p.C.rows * s.ld / 4, side = adding_threads / s.adders;
    return launch_blocks(add_parts, (quads + side - 1) / side, adding_threads, 0, s, where);
}

/* ------------------------------------------------------------------ memory for the parts */

#ifdef __CUDACC__
/* Memory that follows the stream's order: what one product gives back, the next takes, without a
 * wait. One pool for each GPU, which keeps what it once had. */
constexpr int max_devices = 64;
cudaMemPool_t pools[max_devices];

cudaError_t take(float **parts, size_t bytes, const Launch *where)
{
    cudaMemPool_t pool = __atomic_load_n(&pools[where->device], __ATOMIC_ACQUIRE);
    if (!pool) {
        cudaMemPoolProps properties = {};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.location.id = where->device;
        const cudaError_t error = cudaMemPoolCreate(&pool, &properties);
        if (error != cudaSuccess) {
            return error;
        }
        uint64_t keep = UINT64_MAX;
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
        cudaMemPool_t none = nullptr;
        if (!__atomic_compare_exchange_n(&pools[where->device], &none, pool, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            cudaMemPoolDestroy(pool); // another thread was first
            pool = none;
        }
    }
    return cudaMallocFromPoolAsync(reinterpret_cast<void **>(parts), bytes, pool,
                                   static_cast<cudaStream_t>(where->stream));
}

Status take_parts(Split *s, const Launch *where)
{
    const size_t bytes = sizeof(float) * static_cast<size_t>(s->splits * s->p.C.rows * s->ld);
    if (where->device >= max_devices) {
        return status_error(STATUS_UNSUPPORTED, "splitk serves the first %d GPUs", max_devices);
    }
    const cudaError_t error = take(&s->parts, bytes, where);
    if (error == cudaSuccess) {
        return status_ok();
    }
    cudaGetLastError();
    return status_error(error == cudaErrorMemoryAllocation ? STATUS_OUT_OF_MEMORY : STATUS_DEVICE,
                        "no memory on cuda:%d for %d parts of the result (%.3f GB): %s",
                        where->device, s->splits, bytes / 1e9, cudaGetErrorString(error));
}

void give_parts(Split *s, const Launch *where)
{
    cudaFreeAsync(s->parts, static_cast<cudaStream_t>(where->stream));
}
#else
Status take_parts(Split *s, const Launch *)
{
    const size_t bytes = sizeof(float) * static_cast<size_t>(s->splits * s->p.C.rows * s->ld);
    s->parts = static_cast<float *>(aligned_alloc(sizeof(float4), bytes));
    return s->parts ? status_ok()
                    : status_error(STATUS_OUT_OF_MEMORY,
                                   "no memory for %d parts of the result (%.3f GB)", s->splits,
                                   static_cast<double>(bytes) / 1e9);
}

void give_parts(Split *s, const Launch *)
{
    free(s->parts);
}
#endif

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
    Split s = {*problem, plan->splits, 1, 0, nullptr};
    if (plan->swapped) {
        s.p.A = transposed(problem->B);
        s.p.B = transposed(problem->A);
        s.p.C = transposed(problem->C);
    }
    if (plan->splits == 1 && !plan->swapped) {
        return launch_tiling[plan->tiling](s, where);
    }
    s.ld = (s.p.C.cols + 3) / 4 * 4;
    Status status = take_parts(&s, where);
    if (status.code != STATUS_OK) {
        return status;
    }
    status = launch_tiling[plan->tiling](s, where);
    if (status.code == STATUS_OK) {
        status = launch_adding(s, where);
    }
    give_parts(&s, where);
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

LAUNCHER(splitk)
{
#ifdef SGEMM_COUNTED
    const Plan plan = {0, 1, false}; // the one tile that is counted stands for as many as there are
#else
    const Plan plan = plan_splits(problem, multiprocessors_of(where));
#endif
    return launch_plan(problem, where, &plan);
}

VARIANT(splitk, "several blocks for one tile, each with a part of K", "11_splitk.cu",
        {T::BM, T::BN, T::BK}, {T::TM, T::TN}, T::threads, sizeof(T::Shared), {8, 0});
