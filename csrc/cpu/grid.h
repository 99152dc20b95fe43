/* CUDA's execution model for one machine without a GPU: grid, blocks, threads, barriers, shared
 * memory. A kernel compiled against this header runs under run_grid.
 *
 * The threads of a block run one after the other on one OS thread, each until it returns or reaches
 * __syncthreads() or an operation of its warp; blocks are spread over OS threads, and those of a cluster
 * share one. It is a model of what a kernel computes, not of how long a GPU takes. */
#ifndef SGEMM_CPU_GRID_H
#define SGEMM_CPU_GRID_H

#include <stddef.h>
#include <stdint.h>

#include "../core/variant.h"

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

struct alignas(16) float4 {
    float x, y, z, w;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

/* Known to stay in this library, so that a kernel reaches them without a detour. */
#pragma GCC visibility push(hidden)

/* Plain data, so that reading one costs no initialisation check. */
extern __thread uint3 threadIdx, blockIdx;

#define __global__
#define __host__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

/* Whether what is asynchronous happens late, see late.h: in checking builds, but for ThreadSanitizer's,
 * which would take what is noted of that for what the threads do. */
#if defined(SGEMM_CHECKED) && !defined(SGEMM_TSAN)
#define SGEMM_LATE 1
#endif

/* Arrays of shared memory. The blocks of a cluster take turns on one OS thread and would have the same
 * arrays: a kernel that runs in clusters has dynamic shared memory alone, of which each block has its
 * own. */
#ifdef SGEMM_LATE
/* AddressSanitizer does not look inside thread-local data, so such a build has one OS thread and plain
 * storage, kept in a section of its own so that it can be poisoned before each block. */
#define __shared__ static __attribute__((section("sgemm_shared")))
#else
#define __shared__ static __thread
#endif

/* The block's dynamic shared memory: as many bytes as its launch gives it, 1024-byte aligned. */
extern __thread unsigned char *dynamic_shared_bytes;

#define __syncthreads() grid_barrier(__LINE__)

/* Waits until every thread of the block has come to this line of the kernel. */
void grid_barrier(int line);

#define __syncwarp() grid_warp_barrier(__LINE__)

/* Waits until the 32 threads of the warp have come to this line: what each of them has written is
 * there for the others. A block with warp operations has a multiple of 32 threads. */
void grid_warp_barrier(int line);

/* What the threads of a group do together: brought[i] is what thread i of the group brought. */
typedef void GroupOperation(void *const *brought);

/* Waits until the 32 threads of the warp, or the 128 of the warpgroup, have come to this line, and has
 * the operation done once. As on a GPU this is no barrier: checkers do not take what others wrote
 * before to be there. A block with operations of warpgroups has a multiple of 128 threads. */
void grid_meet_warp(int line, GroupOperation *operation, void *mine);
void grid_meet_warpgroup(int line, GroupOperation *operation, void *mine);

/* A kernel with its one argument, whatever their types: call(what) is one thread. */
struct AnyKernel {
    void (*call)(const void *what);
    const void *what;
};

template <class Problem> struct KernelCall {
    void (*kernel)(Problem);
    const Problem *problem;
};

/* The call of an AnyKernel whose `what` is a KernelCall. Static, since the counting build compiles
 * the same kernels once more. */
template <class Problem> static void call_kernel(const void *what)
{
    const auto call = static_cast<const KernelCall<Problem> *>(what);
    call->kernel(*call->problem);
}

/* Runs the kernel for every thread of every block, each with shared_bytes of dynamic shared memory, in
 * clusters of so many blocks, or of none where that is 0 or 1.
 * At most `multiprocessors` OS threads share the blocks, all in the default floating-point environment;
 * with in_calling_thread, the calling thread runs them all, and cannot be interrupted meanwhile.
 * Returns an error, never aborts: when the threads of a block or a cluster part at a barrier, when memory
 * is short, or when interrupted. */
constexpr int in_calling_thread = 0;
Status run_grid(const AnyKernel &kernel, int64_t blocks, dim3 threads, size_t shared_bytes,
                int cluster, int multiprocessors, const Interrupt *interrupt);

/* Whether what is being compiled may use an instruction that multiplies, adds and rounds once. */
#if defined(__FMA__) || defined(__aarch64__)
#define FUSES_MULTIPLY_ADD 1
#else
#define FUSES_MULTIPLY_ADD 0
#endif

/* Whether kernels use such an instruction on this machine. */
bool fuses_multiply_add();

/* How many multiprocessors the CPU device shall have where a kernel's plan depends on it, by the
 * environment's SGEMM_KERNELS_CPU_MULTIPROCESSORS; 0 if that is not set. An error if it is no number
 * from 1 to 4096. */
Status modelled_multiprocessors(int *count);

#ifdef SGEMM_CHECKED
/* What a checking driver may ask of the launches that follow. */
struct GridCheck {
    /* Begin blocks, and their threads: 0 forwards, 1 backwards, n > 1 shuffled with seed n. And who
     * need not wait at an mbarrier, in 0 goes on, in 1 lets others run first, in n as chance has it. */
    int order;
    int64_t last_blocks; /* run so many alone, of each launch the last, and the rest of their
                            cluster; 0: all */
};
extern GridCheck grid_check;
#endif

#pragma GCC visibility pop

#include "cluster.h"
#include "copy_async.h"
#include "exchange.h"
#include "mbarrier.h"
#include "named_barrier.h"
#include "tensor_cores.h"
#include "tma.h"
#include "warp.h"
#include "wgmma.h"

#endif
