/* K divided among blocks: their parts, and how the last of them to arrive adds the sums that all have left in memory. */
#ifndef SGEMM_ENGINE_PARTIAL_SUMS_H
#define SGEMM_ENGINE_PARTIAL_SUMS_H

#include "copy_async.h"

/* Parts of so many steps, as equal as whole steps allow: the first ones have a step more. */
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
    /* Whose a step is. */
    __device__ __forceinline__ int64_t of(int64_t step) const
    {
        const int64_t behind = step - longer * (each + 1);
        return behind < 0 ? divided(step, each + 1).quotient
                          : longer + divided(behind, each).quotient;
    }
};

/* Counts an arrival, and tells how many came before; after the last of them, `others`, it is 0 again. What this thread
 * knows to be stored is so before; and what others did before they arrived is seen by what this one reads after. */
static __device__ __forceinline__ unsigned arrive(unsigned *arrived, unsigned others)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    // Both fences in one: as strong as is needed, where __threadfence is stronger, and takes longer.
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

/* Whether this block is the last of `count` to come here, for each time that so many do. It then sees
 * what all threads of the others stored before. `arrived` is 0 again. */
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

/* What blocks leave for the last of them to arrive, and its counters, for one launch. */
template <class Left> struct Handover {
    Left *left = nullptr;
    unsigned *arrived = nullptr;
    bool taken = false; // or there is no memory, or nothing is `needed`
    const Launch *const where;

    Handover(bool needed, size_t bytes, int64_t counters, const Launch *on) : where(on)
    {
        void *memory;
        if (!needed || scratch_take(bytes, where, &memory).code != STATUS_OK) {
            return;
        }
        taken = counters_take(static_cast<size_t>(counters), where, &arrived).code == STATUS_OK;
        if (!taken) {
            scratch_give(memory, where);
            return;
        }
        left = static_cast<Left *>(memory);
    }
    Handover(const Handover &) = delete;
    Handover &operator=(const Handover &) = delete;
    ~Handover()
    {
        if (taken) {
            scratch_give(arrived, where);
            scratch_give(left, where);
        }
    }
};

static __device__ __forceinline__ void add_quad(float4 &sum, const float4 &more)
{
    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
}

/* The sum of `count` parts of some quads, which lie STEP quads apart in each part, and `apart` in two that follow each
 * other: several parts of each are read at once. Of quads from number `left` on nothing is read. */
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

/* Adds `count` parts of so many quads, `apart` quads from each other, and has each sum stored, by store(quad, sum). Of
 * few quads, for each of which there are two threads or more: these share it, each with every so many-th part; what
 * they have is added in `shared`, which has room for a quad of each thread. All in the same order each time. */
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

/* The same of few or many. */
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
