/* The host's side of a kernel. A KernelSpec describes the kernel for its launch and for its catalog
 * entry. */
#ifndef SGEMM_KERNELS_LAUNCH_H
#define SGEMM_KERNELS_LAUNCH_H

#include <stdlib.h>
#include <string.h>

#ifndef __CUDACC__
#include "../../base/threads.h"
#include "../../emulator/grid.h"
#endif
#include "../../base/sgemm.h"
#include "../../base/variant.h"
#if defined(CUDART_VERSION) && !defined(__CUDACC_RTC__)
#include "launch_kernel.h"
#endif
#ifdef SGEMM_CUSTOM
#include "../../base/custom_kernel.h"
#endif
#ifdef SGEMM_TRACED
#include "../../emulator/access_trace/traced.h"
#endif
#ifdef SGEMM_NAMES_LAUNCHES
#include "../../base/launched.h"
#endif

/* Scratch memory of one launch: see ../../base/scratch.h. */
#ifdef __CUDACC__
#include "../../base/scratch.h"
#else
static inline Status memory_alloc(size_t bytes, bool zeros, void **memory)
{
#ifdef SGEMM_CUSTOM
    if (custom_gpu) {
        return status_error(STATUS_UNSUPPORTED, "a kernel that needs memory of its own is compiled "
                                                "for a GPU by nvcc alone");
    }
#endif
#ifdef SGEMM_SANITIZED
    constexpr size_t beside = 256; /* unused bytes, in which a stray access is found */
#else
    constexpr size_t beside = 0;
#endif
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + beside);
    if (*memory && zeros) {
        memset(*memory, 0, bytes);
    }
#ifdef SGEMM_TRACED
    name_scratch(*memory, bytes, zeros);
#endif
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_memory_allocated(*memory, bytes);
#endif
    return *memory ? status_ok()
                   : status_error(STATUS_OUT_OF_MEMORY, "no memory for %.3f GB",
                                  static_cast<double>(bytes) / 1e9);
}

static inline Status scratch_alloc(size_t bytes, const Launch *, void **memory)
{
    return memory_alloc(bytes, false, memory);
}

static inline Status counters_alloc(size_t count, const Launch *, unsigned **counters)
{
    void *memory;
    const Status status = memory_alloc(count * sizeof **counters, true, &memory);
    *counters = static_cast<unsigned *>(memory);
    return status;
}

static inline void scratch_free(void *memory, const Launch *)
{
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_memory_freed(memory);
#endif
#ifdef SGEMM_SANITIZED
    sanitizer_scratch_freed(memory);
#endif
    free(memory);
}
#endif

#define scratch_take scratch_alloc // former names, for custom kernels that have them
#define scratch_give scratch_free
#define counters_take counters_alloc

/* ------------------------------------------------------------------ the launch */

/* Launches `blocks` blocks for each matrix of a batch: a grid of blocks x matrices. */
template <class Problem>
static inline Status launch_blocks(void (*kernel)(Problem), const KernelSpec &spec, int64_t blocks,
                                   const Problem &problem, const Launch *where,
                                   int64_t matrices = 1)
{
#ifdef SGEMM_NAMES_LAUNCHES
    launched_add(spec.symbol);
#endif
#ifndef __CUDACC_RTC__
    if (blocks > INT32_MAX) {
        return status_error(STATUS_INVALID,
                            "the result needs %lld blocks, more than the 2147483647 of one grid",
                            static_cast<long long>(blocks));
    }
#endif
#ifdef __CUDACC_RTC__
    /* The host launches the kernel. */
    (void)kernel, (void)spec, (void)problem, (void)where, (void)matrices;
    return Status();
#elif defined(__CUDACC__)
    return launch_kernel(reinterpret_cast<const void *>(kernel), &spec, blocks, matrices, &problem,
                         where);
#else
#ifdef SGEMM_CUSTOM
    if (custom_gpu) {
        return custom_gpu->launch(custom_gpu, &spec, blocks, &problem, where);
    }
#endif
    if (spec.cluster > 1 && spec.static_bytes > 0) {
        return status_error(STATUS_DEVICE, "on the CPU device a kernel that runs in clusters has "
                                           "no arrays of shared memory, but dynamic alone");
    }
    const KernelCall<Problem> call = {kernel, &problem};
    return run_grid(
        {call_kernel<Problem>, &call}, blocks,
        dim3(static_cast<unsigned>(spec.threads[0]), static_cast<unsigned>(spec.threads[1])),
        static_cast<size_t>(spec.dynamic_bytes), spec.cluster,
        where->run_inline ? in_calling_thread : usable_cores(), where->interrupt, matrices);
#endif
}

/* How many block_rows x block_cols tiles cover C. */
static inline __host__ __device__ int64_t tiles_of(const Matrix &C, int block_rows, int block_cols)
{
    return ((C.rows + block_rows - 1) / block_rows) * ((C.cols + block_cols - 1) / block_cols);
}

/* Launches one block for each tile of C, or of each C of a batch. */
static inline Status launch_tiles(void (*kernel)(Sgemm), const KernelSpec &spec,
                                  const Sgemm *problem, const Launch *where)
{
#ifndef __CUDACC_RTC__
    if (spec.block_tile[0] < 1 || spec.block_tile[1] < 1) {
        return status_error(STATUS_UNSUPPORTED,
                            "the KernelSpec has a block_tile of %d x %d, and a block is launched "
                            "for each tile: set both sizes to 1 or more",
                            spec.block_tile[0], spec.block_tile[1]);
    }
#endif
    return launch_blocks(kernel, spec, tiles_of(problem->C, spec.block_tile[0], spec.block_tile[1]),
                         *problem, where, problem->count);
}

/* The number of multiprocessors. On the CPU device it is 0, or the value of
 * SGEMM_KERNELS_CPU_MULTIPROCESSORS. */
static inline Status multiprocessors_of(const Launch *where, int *count)
{
#ifdef __CUDACC_RTC__
    *count = 1 + 0 * where->device;
    return Status();
#elif defined(__CUDACC__)
    *count = 1;
    cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, where->device);
    return status_ok();
#else
    (void)where;
    return modelled_multiprocessors(count);
#endif
}

/* How many blocks fill the device if each fills a multiprocessor. On the CPU device 8, or the
 * value of SGEMM_KERNELS_CPU_MULTIPROCESSORS. In the traced build 1: it counts one tile for
 * all. */
static inline Status multiprocessors_to_fill(const Launch *where, int *count)
{
#if defined(SGEMM_TRACED) && !defined(SGEMM_SANITIZED)
    (void)where;
    *count = 1;
    return status_ok();
#else
    const Status status = multiprocessors_of(where, count);
    *count = *count ? *count : 8;
    return status;
#endif
}

/* Whether a block can have the shared memory that a kernel needs. */
static inline bool has_shared_memory(const Launch *where, const KernelSpec &spec)
{
#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
    int most = 0;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, where->device);
    return spec.static_bytes + spec.dynamic_bytes <= most;
#else
    (void)where, (void)spec;
    return true;
#endif
}

/* ------------------------------------------------------------------ the catalog entry */

/* A kernel that is compiled at run time has one launcher and one entry with fixed names:
 * ../../base/custom_kernel.h. */
#ifdef __CUDACC_RTC__
#define LAUNCHER(name) static inline Status launch_own(const Sgemm *problem, const Launch *where)
#define DEFINE_VARIANT(name, ...) static_assert(true, "")
#elif defined(SGEMM_CUSTOM)
#define LAUNCHER(name)                                                                             \
    extern "C" Status launch_own(const Sgemm *problem, const Launch *where);                       \
    extern "C" Status launch_own(const Sgemm *problem, const Launch *where)
#define DEFINE_VARIANT(name, ...)                                                                  \
    extern "C" const Variant variant_custom = {#name, __VA_ARGS__, CUSTOM_LAUNCHERS}
#ifdef __CUDACC__
#define CUSTOM_LAUNCHERS                                                                           \
    {                                                                                              \
        nullptr, launch_own                                                                        \
    }
#else
#define CUSTOM_LAUNCHERS                                                                           \
    {                                                                                              \
        launch_own, nullptr                                                                        \
    }
#endif
/* The host's compilation defines the entry; nvcc's defines only the GPU launcher that the entry
 * names. For x86-64 the host compiles a kernel twice: with SGEMM_FUSED_TOO for all processors,
 * and with SGEMM_FUSED for processors with fused multiply-add, which run the second version. */
#elif defined(__CUDACC__)
#define LAUNCHER(name)                                                                             \
    extern "C" Status launch_##name##_cuda(const Sgemm *problem, const Launch *where)
#define MANY_LAUNCHER(name)                                                                        \
    extern "C" Status launch_many_##name##_cuda(const Sgemm *problems, int64_t count,              \
                                                const Launch *where)
#define DEFINE_VARIANT(name, ...) static_assert(true, "")
#define DEFINE_MANY_VARIANT(name, ...) static_assert(true, "")
#elif defined(SGEMM_FUSED)
#define LAUNCHER(name)                                                                             \
    extern "C" Status launch_##name##_cpu_fused(const Sgemm *problem, const Launch *where)
#define MANY_LAUNCHER(name)                                                                        \
    extern "C" Status launch_many_##name##_cpu_fused(const Sgemm *problems, int64_t count,         \
                                                     const Launch *where)
#define DEFINE_VARIANT(name, ...) static_assert(true, "")
#define DEFINE_MANY_VARIANT(name, ...) static_assert(true, "")
#else
#define LAUNCHER(name) static Status launch_##name##_cpu(const Sgemm *problem, const Launch *where)
#define MANY_LAUNCHER(name)                                                                        \
    static Status launch_many_##name##_cpu(const Sgemm *problems, int64_t count,                   \
                                           const Launch *where)
#ifdef SGEMM_FUSED_TOO
template <auto *PLAIN, auto *FUSED, class... Arguments>
static Status launch_either(Arguments... arguments)
{
    return (fuses_multiply_add() ? FUSED : PLAIN)(arguments...);
}
#define DECLARE_FUSED(type, launcher) extern "C" type launcher##_cpu_fused;
#define ON_CPU(launcher) launch_either<launcher##_cpu, launcher##_cpu_fused>
#else
#define DECLARE_FUSED(type, launcher)
#define ON_CPU(launcher) launcher##_cpu
#endif
#ifdef SGEMM_CUDA
/* Weak, because a build for AMD GPUs lacks the GPU launchers of some rungs. */
#define DECLARE_ON_GPU(type, launcher) extern "C" __attribute__((weak)) type launcher##_cuda;
#define ON_GPU(launcher) launcher##_cuda
#else
#define DECLARE_ON_GPU(type, launcher)
#define ON_GPU(launcher) nullptr
#endif
#ifdef SGEMM_TRACED
#define DEFINE_VARIANT(name, ...) TRACED_VARIANT(name, __VA_ARGS__)
#else
#define DEFINE_VARIANT(name, ...)                                                                  \
    DECLARE_FUSED(Launcher, launch_##name)                                                         \
    DECLARE_ON_GPU(Launcher, launch_##name)                                                        \
    extern "C" const Variant variant_##name = {                                                    \
        #name, __VA_ARGS__, {ON_CPU(launch_##name), ON_GPU(launch_##name)}}
#define DEFINE_MANY_VARIANT(name, ...)                                                             \
    DECLARE_FUSED(Launcher, launch_##name)                                                         \
    DECLARE_FUSED(ManyLauncher, launch_many_##name)                                                \
    DECLARE_ON_GPU(Launcher, launch_##name)                                                        \
    DECLARE_ON_GPU(ManyLauncher, launch_many_##name)                                               \
    extern "C" const Variant variant_##name = {                                                    \
        #name,                                                                                     \
        __VA_ARGS__,                                                                               \
        {ON_CPU(launch_##name), ON_GPU(launch_##name)},                                            \
        {ON_CPU(launch_many_##name), ON_GPU(launch_many_##name)}}
#endif
#endif

/* The catalog entry: VARIANT(name, summary, file, spec, {major, minor}). The last is the least
 * compute capability, or for an ARCHITECTURE_SPECIFIC_VARIANT the only one. */
#define VARIANT(name, ...) DEFINE_VARIANT(name, __VA_ARGS__, false, 1)
#define ARCHITECTURE_SPECIFIC_VARIANT(name, ...) DEFINE_VARIANT(name, __VA_ARGS__, true, 1)

/* The same for a variant with a MANY_LAUNCHER, whose launcher takes batches of any size. */
#define WHOLE_BATCH_VARIANT(name, ...) DEFINE_MANY_VARIANT(name, __VA_ARGS__, false, INT32_MAX)

/* The same for a variant whose launcher takes batches of any size, but no lists of products. */
#define ANY_BATCH_VARIANT(name, ...) DEFINE_VARIANT(name, __VA_ARGS__, false, INT32_MAX)
#define ANY_BATCH_ARCHITECTURE_SPECIFIC_VARIANT(name, ...)                                         \
    DEFINE_VARIANT(name, __VA_ARGS__, true, INT32_MAX)

/* The same for a variant whose launcher takes batches as large as a grid's size in y. A custom
 * kernel need not use address(), so it gets one matrix at a time. */
#ifdef SGEMM_CUSTOM
#define BATCHED_VARIANT VARIANT
#define BATCHED_ARCHITECTURE_SPECIFIC_VARIANT ARCHITECTURE_SPECIFIC_VARIANT
#else
#define BATCHED_VARIANT(name, ...) DEFINE_VARIANT(name, __VA_ARGS__, false, BATCH_OF_LAUNCH)
#define BATCHED_ARCHITECTURE_SPECIFIC_VARIANT(name, ...)                                           \
    DEFINE_VARIANT(name, __VA_ARGS__, true, BATCH_OF_LAUNCH)
#endif

/* A rung of one kernel, which has the rung's name and is launched with one block for each tile
 * of C: RUNG(name, summary, file, spec, {major, minor}). The last is the least compute
 * capability. */
#define RUNG(name, summary, file, spec, ...)                                                       \
    LAUNCHER(name)                                                                                 \
    {                                                                                              \
        return launch_tiles(name, spec, problem, where);                                           \
    }                                                                                              \
    BATCHED_VARIANT(name, summary, file, spec, __VA_ARGS__)

#endif
