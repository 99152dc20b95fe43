/* K divided among blocks: their parts, and how the last of them to arrive adds the sums that all
 * have left in memory. */
#ifndef SGEMM_ENGINE_PARTIAL_SUMS_H
#define SGEMM_ENGINE_PARTIAL_SUMS_H

#include "copy_async.h"

/* Divides steps into parts that differ by at most one step. The first parts are the longer ones. */
struct Parts {
    int count;
    int64_t each, longer; // steps of a part, at least 1, and how many parts have one more

    /* On the host: a GPU takes a hundred cycles to divide, before a block can begin. */
    __host__ Parts(int64_t steps, int count)
        : count(count), each(steps / count), longer(steps % count)
    {}
    /* The first step of a part, or of what follows the last. */
    __device__ __forceinline__ int64_t first(unsigned part) const
    {
        return part * each + (part < longer ? part : longer);
    }
};

/* Counts an arrival and returns how many came before. The counter is 0 again after the last
 * arrival. This thread's earlier stores are visible to all later arrivals. */
static __device__ __forceinline__ unsigned arrive(unsigned *arrived, unsigned others)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    // Both fences in one: as strong as is needed, where __threadfence is stronger, and takes
    // longer.
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(arrived)), "r"(others)
                 : "memory");
    return before;
#else
    __threadfence(); // what the block has stored, before it arrives
    const unsigned before = atomicInc(arrived, others);
    __threadfence(); // and before what the block reads, that the others have arrived
    return before;
#endif
}

/* True in the last of `count` blocks to arrive. That block then sees the stores of all threads
 * of the others. The counter is 0 again. */
static __device__ __forceinline__ bool last_to_arrive(unsigned *arrived, int64_t count,
                                                      bool &is_last)
{
    const unsigned others = static_cast<unsigned>(count - 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = arrive(arrived, others) == others;
    }
    __syncthreads();
    return is_last;
}

/* Memory of one launch: for the sums that blocks leave for the last of them, and its counters. */
template <class Left> struct Handover {
    Left *left = nullptr;
    unsigned *arrived = nullptr;
    Status status; // STATUS_OUT_OF_MEMORY: there is none
    const Launch *const where;

    Handover(size_t bytes, int64_t counters, const Launch *on) : where(on)
    {
        void *memory = nullptr;
        status = scratch_take(bytes, where, &memory);
        if (status.code != STATUS_OK) {
            return;
        }
        left = static_cast<Left *>(memory);
        status = counters_take(static_cast<size_t>(counters), where, &arrived);
    }
    Handover(const Handover &) = delete;
    Handover &operator=(const Handover &) = delete;
    ~Handover()
    {
        if (status.code == STATUS_OK) {
            scratch_give(arrived, where);
        }
        if (left) {
            scratch_give(left, where);
        }
    }
};

static __device__ __forceinline__ void add_quad(float4 &sum, const float4 &more)
{
    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
}

/* Adds `count` partial sums of QUADS float4s. The float4s are STEP apart, and the partial sums
 * `apart`. Reads several partial sums at once, and none from number `left` on. */
template <int QUADS, int STEP, int PARTS>
static __device__ __forceinline__ void sum_parts(const float4 *from, int left, int64_t apart,
                                                 int count, float4 (&sums)[QUADS])
{
    UNROLL(QUADS)
    for (int i = 0; i < QUADS; ++i) {
        sums[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    UNROLL(PARTS)
    for (int part = 0; part < count; ++part) {
        UNROLL(QUADS)
        for (int i = 0; i < QUADS; ++i) {
            if (i * STEP < left) {
                add_quad(sums[i], from[i * STEP]);
            }
        }
        from += apart;
    }
}

/* Adds `count` partial sums of few float4s and calls store(quad, sum) for each. Several threads
 * share a float4: each adds every n-th partial sum, and the results are added in `shared`, which
 * holds a float4 for each thread. The order of additions is fixed. */
template <int THREADS, class Store>
static __device__ __forceinline__ void add_few(const float4 *parts, int quads, int64_t apart,
                                               int count, float4 *shared, Store store)
{
    const int thread = static_cast<int>(threadIdx.x);
    int side = THREADS / 2, sharers = 2;
    UNROLL(1)
    while (side / 2 >= quads && side > 1) {
        side /= 2;
        sharers *= 2;
    }
    const int quad = thread & (side - 1), y = thread / side;
    const int own = y < count ? (count - y - 1) / sharers + 1 : 0; // parts
    float4 sums[1];
    sum_parts<1, 1, 8>(parts + y * apart + quad, quads - quad, sharers * apart, own, sums);
    shared[thread] = sums[0];
    __syncthreads();
    if (quad < quads && y == 0) {
        const int others = sharers < count ? sharers : count; // who have any
        for (int other = 1; other < others; ++other) {
            add_quad(sums[0], shared[other * side + quad]);
        }
        store(quad, sums[0]);
    }
}

/* The same for any number of float4s. */
template <int THREADS, class Store>
static __device__ __forceinline__ void add_left(const float4 *parts, int quads, int64_t apart,
                                                int count, float4 *shared, Store store)
{
    if (quads <= THREADS / 2) {
        add_few<THREADS>(parts, quads, apart, count, shared, store);
        return;
    }
    constexpr int several = 4;
    UNROLL(1)
    for (int quad = static_cast<int>(threadIdx.x); quad < quads; quad += several * THREADS) {
        float4 sums[several];
        sum_parts<several, THREADS, 4>(parts + quad, quads - quad, apart, count, sums);
        UNROLL(several)
        for (int i = 0; i < several; ++i) {
            if (quad + i * THREADS < quads) {
                store(quad + i * THREADS, sums[i]);
            }
        }
    }
}

#endif
