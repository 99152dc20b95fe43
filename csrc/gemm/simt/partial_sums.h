/* Split-K through memory: how K is divided among blocks, and how the last block to arrive adds the
 * partial sums of all. */
#ifndef SGEMM_GEMM_PARTIAL_SUMS_H
#define SGEMM_GEMM_PARTIAL_SUMS_H

#include "copy_async.h"

/* Divides steps of K into splits that differ by at most one step. The first ones are longer. */
struct SplitK {
    int count;
    int64_t each, longer; // steps of a split; number of splits with one more step

    /* Runs on the host, because a division takes a GPU a hundred cycles. */
    __host__ SplitK(int64_t steps, int count)
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
template <class T> struct Workspace {
    T *data = nullptr;
    unsigned *arrived = nullptr;
    Status status; // STATUS_OUT_OF_MEMORY if there is not enough
    const Launch *const where;

    Workspace(size_t bytes, int64_t counters, const Launch *on) : where(on)
    {
        void *memory = nullptr;
        status = scratch_alloc(bytes, where, &memory);
        if (status.code != STATUS_OK) {
            return;
        }
        data = static_cast<T *>(memory);
        status = counters_alloc(static_cast<size_t>(counters), where, &arrived);
    }
    Workspace(const Workspace &) = delete;
    Workspace &operator=(const Workspace &) = delete;
    ~Workspace()
    {
        if (status.code == STATUS_OK) {
            scratch_free(arrived, where);
        }
        if (data) {
            scratch_free(data, where);
        }
    }
};

static __device__ __forceinline__ void add_float4(float4 &sum, const float4 &more)
{
    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
}

/* Adds `count` partial sums, `stride` float4s from each other, for FLOAT4S float4s that are STEP
 * apart. Float4s `left` and beyond do not exist. Reads PARTS partial sums at a time. */
template <int FLOAT4S, int STEP, int PARTS>
static __device__ __forceinline__ void
add_partial_sums(const float4 *from, int left, int64_t stride, int count, float4 (&sums)[FLOAT4S])
{
    UNROLL(FLOAT4S)
    for (int i = 0; i < FLOAT4S; ++i) {
        sums[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    UNROLL(PARTS)
    for (int part = 0; part < count; ++part) {
        UNROLL(FLOAT4S)
        for (int i = 0; i < FLOAT4S; ++i) {
            if (i * STEP < left) {
                add_float4(sums[i], from[i * STEP]);
            }
        }
        from += stride;
    }
}

/* Adds `count` partial sums of few float4s and calls store(index, sum) for each. Several threads
 * share a float4: each adds every n-th partial sum, and their results are added in `shared`, which
 * holds a float4 for each thread. The order of additions is fixed. */
template <int THREADS, class Store>
static __device__ __forceinline__ void add_few(const float4 *partial_sums, int float4s,
                                               int64_t stride, int count, float4 *shared,
                                               Store store)
{
    const int thread = static_cast<int>(threadIdx.x);
    int side = THREADS / 2, sharers = 2;
    UNROLL(1)
    while (side / 2 >= float4s && side > 1) {
        side /= 2;
        sharers *= 2;
    }
    const int index = thread & (side - 1), y = thread / side;
    const int own = y < count ? (count - y - 1) / sharers + 1 : 0; // partial sums
    float4 sums[1];
    add_partial_sums<1, 1, 8>(partial_sums + y * stride + index, float4s - index, sharers * stride,
                              own, sums);
    shared[thread] = sums[0];
    __syncthreads();
    if (index < float4s && y == 0) {
        const int others = sharers < count ? sharers : count; // sharers with a partial sum
        for (int other = 1; other < others; ++other) {
            add_float4(sums[0], shared[other * side + index]);
        }
        store(index, sums[0]);
    }
}

/* The same for any number of float4s. */
template <int THREADS, class Store>
static __device__ __forceinline__ void add_sums(const float4 *partial_sums, int float4s,
                                                int64_t stride, int count, float4 *shared,
                                                Store store)
{
    if (float4s <= THREADS / 2) {
        add_few<THREADS>(partial_sums, float4s, stride, count, shared, store);
        return;
    }
    constexpr int several = 4;
    UNROLL(1)
    for (int index = static_cast<int>(threadIdx.x); index < float4s; index += several * THREADS) {
        float4 sums[several];
        add_partial_sums<several, THREADS, 4>(partial_sums + index, float4s - index, stride, count,
                                              sums);
        UNROLL(several)
        for (int i = 0; i < several; ++i) {
            if (index + i * THREADS < float4s) {
                store(index + i * THREADS, sums[i]);
            }
        }
    }
}

#endif
