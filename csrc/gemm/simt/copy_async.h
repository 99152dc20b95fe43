/* Asynchronous copies to shared memory, and the barriers that signal their completion. */
#ifndef SGEMM_GEMM_COPY_ASYNC_H
#define SGEMM_GEMM_COPY_ASYNC_H

#include "kernel_helpers.h"

/* Added to each row of a shared tile, so that four floats stored one below the other are in
 * different banks. A multiple of 4 keeps the rows aligned. */
constexpr int float4_padding = 4;

/* Reads four consecutive floats with one load. */
static __device__ __forceinline__ void read_float4(float *to, const float *from)
{
    const float4 vector = *reinterpret_cast<const float4 *>(from);
    to[0] = vector.x;
    to[1] = vector.y;
    to[2] = vector.z;
    to[3] = vector.w;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SGEMM_ASYNC 1
#endif

/* A barrier in shared memory. A phase completes after a fixed number of arrivals. Phases
 * alternate in parity; the first has parity 0. */
typedef uint64_t Barrier;

/* Initializes a barrier before other threads can see it. */
static __device__ __forceinline__ void barrier_begin(Barrier *barrier, int arrivals)
{
#ifdef SGEMM_ASYNC
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals));
#elif !defined(__CUDACC__)
    grid_mbarrier_init(barrier, arrivals, __LINE__);
#endif
}

/* Waits until the phase of this parity is complete. On a new barrier, parity 1 returns at once. */
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

/* Copies one float to shared memory asynchronously. If it is not inside the matrix, writes 0 and
 * reads nothing. The L2 cache prefetches the FETCHED bytes around it, which the next copies
 * need. */
template <int FETCHED>
static __device__ __forceinline__ void copy_async(float *to, const float *from, bool there)
{
    static_assert(FETCHED == 128 || FETCHED == 256, "sizes that cp.async knows");
#ifdef SGEMM_ASYNC
    const unsigned address = shared_address(to);
    const int bytes = there ? 4 : 0;
    if constexpr (FETCHED == 128) {
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(address),
                     "l"(from), "r"(bytes));
    } else {
        asm volatile("cp.async.ca.shared.global.L2::256B [%0], [%1], 4, %2;" ::"r"(address),
                     "l"(from), "r"(bytes));
    }
#elif !defined(__CUDACC__)
    grid_copy_async(to, there ? from : nullptr, 4, __LINE__);
#endif
}

/* The same for a float4. Both addresses are multiples of 16. */
static __device__ __forceinline__ void copy_float4_async(float *to, const float *from, bool there)
{
#ifdef SGEMM_ASYNC
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0));
#elif !defined(__CUDACC__)
    grid_copy_async(to, there ? from : nullptr, 16, __LINE__);
#endif
}

/* The barriers of the pipeline, in shared memory. Tile t uses stage t % STAGES, which is full when
 * the copies of all threads have landed. Threads arrive at least a whole tile before they wait, so
 * no warp waits for the slowest one at each tile.
 *
 * The same barrier frees stages. A thread arrives at tile t's barrier after it has multiplied tile
 * t - 3. So once tile t is complete, all threads have done so, and tile t + 1 may replace tile
 * t - 3. */
template <int STAGES> struct Pipeline {
    Barrier full[STAGES];

    __device__ __forceinline__ void begin(int thread, int threads)
    {
        if (thread < STAGES) {
            barrier_begin(full + thread, threads);
        }
        __syncthreads();
    }

    /* Arrives when all copies that this thread has started so far have landed. */
    __device__ __forceinline__ void commit(int tile)
    {
#ifdef SGEMM_ASYNC
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
                         shared_address(full + tile % STAGES))
                     : "memory");
#elif !defined(__CUDACC__)
        grid_copy_arrive(full + tile % STAGES, __LINE__);
#endif
    }

    /* Waits until the tile is complete. */
    __device__ __forceinline__ void wait(int tile)
    {
        barrier_wait(full + tile % STAGES, tile / STAGES % 2);
    }
};

#endif
