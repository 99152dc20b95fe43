/* Split-K through memory: how K is divided among blocks, and how the last block to arrive adds the
 * partial sums of all. */
#ifndef SGEMM_ENGINE_PARTIAL_SUMS_H
#define SGEMM_ENGINE_PARTIAL_SUMS_H

#include "copy_async.h"

/* Divides steps of K into splits that differ by at most one step. The first ones are longer. */
struct Parts {
    int count;
    int64_t each, longer; // steps of a split; number of splits with one more step

    /* Runs on the host, because a division takes a GPU a hundred cycles. */
    __host__ Parts(int64_t steps, int count)
        : count(count), each(steps / count), longer(steps % count)
    {}
    /* The first step of a split; first(count) is the number of steps. */
    __device__ __forceinline__ int64_t first(unsigned part) const
    {
        return part * each + (part < longer ? part : longer);
    }
};

/* Counts an arrival and returns how many came before. The last arrival resets the counter to 0.
 * This thread's earlier stores are visible to all threads that arrive later. */
static __device__ __forceinline__ unsigned arrive(unsigned *arrived, unsigned others)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    // Replaces both fences below. __threadfence is stronger than needed, and slower.
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(arrived)), "r"(others)
                 : "memory");
    return before;
#else
    __threadfence(); // the block's stores are visible before it arrives
    const unsigned before = atomicInc(arrived, others);
    __threadfence(); // the block reads the others' stores after it arrives
    return before;
#endif
}

/* Returns true in the last of `count` blocks to arrive. That block sees the stores of all other
 * blocks, and the counter is 0 again. */
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

/* Memory of one launch for partial sums and for the counters of arrivals. */
template <class Left> struct Handover {
    Left *left = nullptr;
    unsigned *arrived = nullptr;
    Status status; // STATUS_OUT_OF_MEMORY if there is not enough
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

/* Adds `count` partial sums, `apart` float4s from each other, for QUADS float4s that are STEP
 * apart. Float4s `left` and beyond do not exist. Reads PARTS partial sums at a time. */
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

/* Adds `count` partial sums of few float4s and calls store(index, sum) for each. Several threads
 * share a float4: each adds every n-th partial sum, and their results are added in `shared`, which
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
    const int own = y < count ? (count - y - 1) / sharers + 1 : 0; // partial sums
    float4 sums[1];
    sum_parts<1, 1, 8>(parts + y * apart + quad, quads - quad, sharers * apart, own, sums);
    shared[thread] = sums[0];
    __syncthreads();
    if (quad < quads && y == 0) {
        const int others = sharers < count ? sharers : count; // sharers with a partial sum
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
