/* What is left of async when 09_async.cu is understood: barriers in shared memory, for which copies arrive as
 * threads do. They and asynchronous copies are of GPUs of compute capability 8.0 or newer. */
#ifndef SGEMM_KERNELS_09_BARRIER_H
#define SGEMM_KERNELS_09_BARRIER_H

#include "kernel.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SGEMM_ASYNC 1
#endif

/* Completes a phase after as many arrivals as it was begun with. Phases are told apart by their parity: the
 * first has 0. */
typedef uint64_t Barrier;

/* Nobody knows of it yet. */
static __device__ __forceinline__ void barrier_begin(Barrier *barrier, int arrivals)
{
#ifdef SGEMM_ASYNC
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals));
#elif !defined(__CUDACC__)
    grid_mbarrier_init(barrier, arrivals, __LINE__);
#endif
}

/* Until the phase of this parity is complete. A barrier that was just begun counts as if a phase of
 * parity 1 had been. */
static __device__ __forceinline__ void barrier_wait(Barrier *barrier, int parity)
{
#ifdef SGEMM_ASYNC
    unsigned done;
    do {
        asm volatile("{\n"
                     ".reg .pred done;\n"
#if __CUDA_ARCH__ >= 900
                     "mbarrier.try_wait.parity.shared.b64 done, [%1], %2;\n"
#else
                     "mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n"
#endif
                     "selp.u32 %0, 1, 0, done;\n"
                     "}"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
#elif !defined(__CUDACC__)
    grid_mbarrier_wait(barrier, parity, __LINE__);
#endif
}

/* Nobody waits for it any more: it may begin anew. */
static __device__ __forceinline__ void barrier_end(Barrier *barrier)
{
#ifdef SGEMM_ASYNC
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
#else
    (void)barrier;
#endif
}

#endif
