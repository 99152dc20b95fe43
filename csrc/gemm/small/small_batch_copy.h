/* Copies of the kernels for batches of small products: cp.async, or loads before compute capability
 * 8.0, and stores. */
#ifndef SGEMM_GEMM_SMALL_BATCH_COPY_H
#define SGEMM_GEMM_SMALL_BATCH_COPY_H

#include "../plan/small_batch_plan.h"
#include "../simt/kernel_helpers.h"

namespace {

struct SmallBatch {
    Sgemm p;
    SmallBatchPlan plan;
};

template <int N> struct alignas(4 * N) Floats {
    float value[N];
};

template <int N> KERNEL_BODY void read_floats(float *to, const float *from)
{
    const Floats<N> read = *reinterpret_cast<const Floats<N> *>(from);
    UNROLL(4)
    for (int i = 0; i < N; ++i) {
        to[i] = read.value[i];
    }
}

/* Starts a copy of N floats to shared memory, or of zeros. An operand that all products share is
 * read through the L1 cache; otherwise all multiprocessors would read the same few lines of the L2
 * cache. */
template <int N>
KERNEL_BODY void begin_copy(float *to, const float *from, bool inside, bool shared_by_all)
{
    (void)shared_by_all; // other devices have one cache
#if !defined(__CUDACC__)
    grid_copy_async(to, inside ? from : nullptr, 4 * N, __LINE__);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (N == 4 && !shared_by_all) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(to)),
                     "l"(from), "r"(inside ? 16 : 0)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(smem_address(to)),
                     "l"(from), "n"(4 * N), "r"(inside ? 4 * N : 0)
                     : "memory");
    }
#else
    *reinterpret_cast<Floats<N> *>(to) =
        inside ? *reinterpret_cast<const Floats<N> *>(from) : Floats<N>{};
#endif
}

/* Ends the group of copies that this thread has started. */
KERNEL_BODY void end_group()
{
#if !defined(__CUDACC__)
    grid_copy_commit();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most the newest LEFT groups of this thread are in flight. */
template <int LEFT> KERNEL_BODY void wait_for_groups()
{
#if !defined(__CUDACC__)
    grid_copy_wait(LEFT);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

/* Stores N results. */
template <int N> KERNEL_BODY void store_floats(const Sgemm &p, float *to, const float *sum)
{
    Floats<N> *const c = reinterpret_cast<Floats<N> *>(to);
    Floats<N> result = {};
    if (p.beta != 0.0f) {
        result = *c;
    }
    UNROLL(4)
    for (int i = 0; i < N; ++i) {
        result.value[i] = scaled(p, sum[i], result.value[i]);
    }
    *c = result;
}

/* Three small numbers in one register: a thread's place among the threads of a block. */
struct BatchPlace {
    unsigned packed;

    /* Divides the threads: `inner` threads along the last dimension, and `middle` such groups. */
    __device__ __forceinline__ BatchPlace(unsigned thread, unsigned middle, unsigned inner)
    {
        const unsigned of_inner = thread / inner, of_middle = of_inner / middle;
        packed =
            of_middle << 20 | (of_inner - of_middle * middle) << 10 | (thread - of_inner * inner);
    }
    __device__ __forceinline__ int outer() const
    {
        return static_cast<int>(packed >> 20);
    }
    __device__ __forceinline__ int middle() const
    {
        return static_cast<int>(packed >> 10 & 1023);
    }
    __device__ __forceinline__ int inner() const
    {
        return static_cast<int>(packed & 1023);
    }
};

} // namespace

#endif
