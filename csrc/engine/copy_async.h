/* Asynchronous copies to shared memory, and the barriers that tell when they are complete. */
#ifndef SGEMM_ENGINE_COPY_ASYNC_H
#define SGEMM_ENGINE_COPY_ASYNC_H

#include "kernel_helpers.h"

/* Added to each row of a shared tile: it moves a quad that is stored along the depth, element by
 * element, to banks of its own. A multiple of 4 keeps the rows aligned. */
constexpr int quad_padding = 4;

/* Four neighbouring floats, by one load. */
static __device__ __forceinline__ void read_quad(float *to, const float *from)
{
    const float4 quad = *reinterpret_cast<const float4 *>(from);
    to[0] = quad.x;
    to[1] = quad.y;
    to[2] = quad.z;
    to[3] = quad.w;
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

/* Waits for the phase of this parity. A new barrier counts as if a phase of parity 1 were
 * complete. */
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

/* Begins to copy one float to shared memory; writes 0 where it is not `there`, and reads nothing.
 * The thread goes on at once, and no register holds what is on its way. The L2 cache is told to
 * fetch all 128 or 256 bytes around it, whose others the next copies take. */
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

/* The same for four neighbours. Both addresses are aligned to 16 bytes. */
static __device__ __forceinline__ void copy_quad_async(float *to, const float *from, bool there)
{
#ifdef SGEMM_ASYNC
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0));
#elif !defined(__CUDACC__)
    grid_copy_async(to, there ? from : nullptr, 16, __LINE__);
#endif
}

/* The pipeline's barriers, in shared memory; tile t goes through stage t % STAGES, which is full
 * when what all threads of the block copy to it is there. Threads arrive at least a whole tile
 * before they wait, so that no warp waits for another longer than it must.
 *
 * That tells as well which stage may be filled again. A thread arrives at tile t's barrier after it
 * has multiplied all of tile t - 3, if there is one. Who has waited for tile t therefore knows of
 * every thread that it has, and may put tile t + 1 in that tile's place. */
template <int STAGES> struct Pipeline {
    Barrier full[STAGES];

    __device__ __forceinline__ void begin(int thread, int threads)
    {
        if (thread < STAGES) {
            barrier_begin(full + thread, threads);
        }
        __syncthreads();
    }

    /* This thread has begun all of its copies of the tile, if it has any. */
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

    /* Until the tile is there. */
    __device__ __forceinline__ void wait(int tile)
    {
        barrier_wait(full + tile % STAGES, tile / STAGES % 2);
    }
};

#endif
