/* CUDA's execution model on a CPU: grid, blocks, threads, barriers, shared memory. Kernels compiled
 * with this header run in run_grid.
 *
 * The threads of a block share one OS thread. Each runs until it returns or reaches __syncthreads()
 * or a warp operation; then another one runs. Blocks are spread over OS threads; the blocks of a
 * cluster share one. Results match a GPU's; timings do not predict a GPU's. */
#ifndef SGEMM_EMULATOR_GRID_H
#define SGEMM_EMULATOR_GRID_H

#include <stddef.h>
#include <stdint.h>

#include "../base/variant.h"

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

/* Hidden, so that kernels access these names directly instead of through the dynamic linker's
 * tables. */
#pragma GCC visibility push(hidden)

/* Plain data: reading it needs no initialization check. */
extern __thread uint3 threadIdx, blockIdx;

#define __global__
#define __host__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

/* Fails if the block has more threads than this line of a custom kernel allows. */
void grid_check_bounds(int most, int line);

/* Asynchronous work completes late (deferred_async.h) in checking builds. ThreadSanitizer's is an
 * exception: it would attribute the bookkeeping to the kernel's threads. */
#if defined(SGEMM_CHECKED) && !defined(SGEMM_TSAN)
#define SGEMM_DEFERRED_ASYNC 1
#endif

/* Arrays of shared memory. The blocks of a cluster share an OS thread and would share these arrays,
 * so kernels in clusters use only dynamic shared memory. */
#ifdef SGEMM_DEFERRED_ASYNC
/* AddressSanitizer does not check thread-local data. Such a build runs one OS thread and uses
 * static data, in its own section so that it can be poisoned before each block. */
#define __shared__ static __attribute__((section("sgemm_shared")))
#else
#define __shared__ static __thread
#endif

/* The block's dynamic shared memory, of the size that the launch requests and 1024-byte aligned. */
extern __thread unsigned char *dynamic_shared_bytes;

#define __syncthreads() grid_barrier(__LINE__)

/* Waits until all threads of the block have reached this line of the kernel. */
void grid_barrier(int line);

/* With a mask, only its lanes wait for each other. */
#define __syncwarp(...)                                                                            \
    (sizeof(#__VA_ARGS__) == 1 ? grid_warp_barrier(__LINE__)                                       \
                               : grid_barrier_of_lanes((__VA_ARGS__ + 0u), __LINE__))

/* Waits until the 32 threads of the warp have reached this line. Their earlier writes are then
 * visible to each other. The block size must be a multiple of 32. */
void grid_warp_barrier(int line);

/* An operation of a group of threads. Element i is the argument of thread i. */
typedef void GroupOperation(void *const *arguments);

/* Waits until the 32 threads of the warp, or the 128 of the warpgroup, have reached this line, then
 * runs the operation once. As on a GPU this is no barrier: for checkers, earlier writes of other
 * threads are not visible. The block size must be a multiple of 32, or 128. */
void grid_synchronize_warp(int line, GroupOperation *operation, void *mine);
void grid_synchronize_warpgroup(int line, GroupOperation *operation, void *mine);

/* A kernel with its one argument, of any type: call(what) runs one thread. */
struct AnyKernel {
    void (*call)(const void *what);
    const void *what;
};

template <class Problem> struct KernelCall {
    void (*kernel)(Problem);
    const Problem *problem;
};

/* AnyKernel.call, with a KernelCall as `what`. Static, because the traced build compiles the same
 * kernels again. */
template <class Problem> static void call_kernel(const void *what)
{
    const auto call = static_cast<const KernelCall<Problem> *>(what);
    call->kernel(*call->problem);
}

/* Runs the kernel for every thread of every block of a grid of blocks x matrices. Each block gets
 * shared_bytes of dynamic shared memory. `cluster` is the number of blocks per cluster; 0 or 1: no
 * clusters. At most `multiprocessors` OS threads share the blocks, in the default floating-point
 * environment. With in_calling_thread the calling thread runs all blocks and cannot be interrupted.
 * Returns an error and never aborts: if threads reach different barriers, if memory is short, or if
 * interrupted. */
constexpr int in_calling_thread = 0;
Status run_grid(const AnyKernel &kernel, int64_t blocks, dim3 threads, size_t shared_bytes,
                int cluster, int multiprocessors, const Interrupt *interrupt, int64_t matrices = 1);

/* 1 if the code being compiled may use fused multiply-add instructions. */
#if defined(__FMA__) || defined(__aarch64__)
#define FUSES_MULTIPLY_ADD 1
#else
#define FUSES_MULTIPLY_ADD 0
#endif

/* True if kernels use fused multiply-add instructions on this machine. */
bool fuses_multiply_add();

/* The number of multiprocessors of the GPU that the CPU device models, which some plans depend on:
 * SGEMM_KERNELS_CPU_MULTIPROCESSORS, or 0 if it is not set. An error unless it is a number from 1
 * to 4096. */
Status modelled_multiprocessors(int *count);

#ifdef SGEMM_CHECKED
/* Options of a checking driver for later launches. */
struct GridCheck {
    /* The order in which blocks and threads start: 0 forward, 1 backward, n > 1 shuffled with seed
     * n. A thread that need not wait at an mbarrier goes on in order 0, lets others run first in
     * order 1, and either at random in others. */
    int order;
    /* Run only this many last blocks of each launch, and the rest of their cluster; 0: all. */
    int64_t last_blocks;
    /* A block may end before copies by threads that nothing waits for, as a GPU allows. */
    bool lets_copies_end_late;
};
extern GridCheck grid_check;
#endif

#pragma GCC visibility pop

#include "atomics.h"
#include "cluster.h"
#include "copy_async.h"
#include "mbarrier.h"
#include "named_barrier.h"
#include "tensor_cores.h"
#include "tma.h"
#include "warp.h"
#include "wgmma.h"

#endif
