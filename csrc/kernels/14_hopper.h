/* What `wgmma` asks of a GPU of compute capability 9.0: barriers in shared memory that count bytes,
 * TMA, which brings a box of a matrix by itself, and products that a warpgroup (four warps) takes
 * straight from shared memory. All but the barriers is machine code for sm_90a, which runs on no newer
 * GPU. */
#ifndef SGEMM_KERNELS_14_HOPPER_H
#define SGEMM_KERNELS_14_HOPPER_H

#include "13_halves.h"

#ifdef __CUDACC__
#include <cuda.h>
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SGEMM_HOPPER 1
#elif defined(__CUDA_ARCH__)
#error "this is for sm_90a alone: nvcc -gencode=arch=compute_90a,code=sm_90a"
#endif

#ifdef SGEMM_HOPPER
static __device__ __forceinline__ unsigned in_shared(const void *pointer)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
#endif

/* ------------------------------------------------------------------ barriers */

/* Completes a phase when as many threads have arrived as it was begun with, and all bytes are there
 * that they expect. Phases are told apart by their parity: the first has 0. */
typedef uint64_t Barrier;

static __device__ __forceinline__ void barrier_begin(Barrier *barrier, int arrivals)
{
#ifdef SGEMM_HOPPER
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(in_shared(barrier)), "r"(arrivals));
#elif !defined(__CUDACC__)
    grid_mbarrier_init(barrier, arrivals, __LINE__);
#endif
}

/* What this thread has written to shared memory, barriers included, is there for TMA. */
static __device__ __forceinline__ void show_to_tma()
{
#ifdef SGEMM_HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_proxy_fence(__LINE__);
#endif
}

static __device__ __forceinline__ void barrier_arrive(Barrier *barrier)
{
#ifdef SGEMM_HOPPER
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(in_shared(barrier)) : "memory");
#elif !defined(__CUDACC__)
    grid_mbarrier_arrive(barrier, __LINE__);
#endif
}

/* Arrives, and has the phase wait for so many bytes that copies bring. */
static __device__ __forceinline__ void barrier_arrive_expecting(Barrier *barrier, int bytes)
{
#ifdef SGEMM_HOPPER
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(in_shared(barrier)),
                 "r"(bytes)
                 : "memory");
#elif !defined(__CUDACC__)
    grid_mbarrier_arrive_expect(barrier, bytes, __LINE__);
#endif
}

/* Until the phase of this parity is complete. A barrier that was just begun counts as if a phase of
 * parity 1 had been. */
static __device__ __forceinline__ void barrier_wait(Barrier *barrier, int parity)
{
#ifdef SGEMM_HOPPER
    unsigned done;
    do {
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "mbarrier.try_wait.parity.shared.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;\n"
                     "}"
                     : "=r"(done)
                     : "r"(in_shared(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
#elif !defined(__CUDACC__)
    grid_mbarrier_wait(barrier, parity, __LINE__);
#endif
}

/* A barrier of the block for the first `threads` of it alone, which all come here. */
static __device__ __forceinline__ void meet_first(int threads)
{
#ifdef __CUDACC__
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
#else
    grid_named_barrier(1, threads, __LINE__);
#endif
}

/* Hands registers that the warpgroup does not need back to its block, or takes such. */
template <int REGISTERS> static __device__ __forceinline__ void keep_registers()
{
#ifdef SGEMM_HOPPER
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}

template <int REGISTERS> static __device__ __forceinline__ void take_registers()
{
#ifdef SGEMM_HOPPER
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}

/* ------------------------------------------------------------------ TMA */

constexpr int swizzle_bytes =
    128; // a row of a box; eight rows have their chunks in different orders

#ifdef __CUDACC__
typedef CUtensorMap TensorMap;
#endif

#ifdef __CUDACC__
typedef decltype(&cuTensorMapEncodeTiled) EncodeTensorMap;

/* Of the driver, which is not linked; NULL if it is too old. */
static inline EncodeTensorMap find_encode()
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult how;
    const char *const name = "cuTensorMapEncodeTiled";
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how);
#endif
    if (error != cudaSuccess) {
        cudaGetLastError(); // which is this one, and is said by who asks
        return nullptr;
    }
    return reinterpret_cast<EncodeTensorMap>(found);
}
#endif

/* Describes an operand in halves, to be brought in boxes of so many lines by a block of 32 of the
 * depth, swizzled. */
static inline Status describe_halves(TensorMap *map, const Halves &X, int box_lines)
{
    const auto lines = static_cast<uint64_t>(X.groups) * group_lines;
    const auto pitch = static_cast<uint64_t>(X.pitch()) * sizeof(Chunk);
#ifdef __CUDACC__
    static const EncodeTensorMap encode = find_encode();
    if (!encode) {
        return status_error(STATUS_DEVICE, "the driver has no cuTensorMapEncodeTiled: version 12.0 "
                                           "or newer is needed");
    }
    const cuuint64_t sizes[] = {pitch / sizeof(uint16_t), lines};
    const cuuint32_t box[] = {swizzle_bytes / sizeof(uint16_t), static_cast<cuuint32_t>(box_lines)};
    const cuuint64_t pitches[] = {pitch};
    const cuuint32_t steps[] = {1, 1};
    const CUresult result =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, X.lines, sizes, pitches, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS
               ? status_ok()
               : status_error(STATUS_DEVICE,
                              "cuTensorMapEncodeTiled refused a matrix of halves: "
                              "error %d of the driver",
                              static_cast<int>(result));
#else
    *map = {X.lines,
            pitch / sizeof(uint16_t),
            lines,
            pitch,
            swizzle_bytes / static_cast<int>(sizeof(uint16_t)),
            box_lines,
            swizzle_bytes};
    return status_ok();
#endif
}

/* Begins to copy the box of the lines from `line` on and of this block of the depth to shared memory,
 * at a multiple of 1024 bytes; zeros for lines that there are not. Its bytes are counted by the barrier. */
static __device__ __forceinline__ void bring_box(Chunk *to, const TensorMap &map, int line,
                                                 int block, Barrier *barrier)
{
    const int first = block * (swizzle_bytes / static_cast<int>(sizeof(uint16_t)));
#ifdef SGEMM_HOPPER
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(in_shared(to)),
                 "l"(&map), "r"(first), "r"(line), "r"(in_shared(barrier))
                 : "memory");
#elif !defined(__CUDACC__)
    grid_copy_box(to, &map, barrier, first, line, __LINE__);
#else
    (void)first;
#endif
}

/* ------------------------------------------------------------------ products of a warpgroup */

/* Lines of a shared tile that a product takes, 128 bytes each, from one of their chunks on, as the
 * hardware wants to be told of them. */
struct SharedLines {
#ifdef __CUDACC__
    uint64_t descriptor;

    __device__ __forceinline__ explicit SharedLines(const Chunk *first)
    {
#ifdef SGEMM_HOPPER
        constexpr uint64_t swizzle_128 = uint64_t{1} << 62, eight_lines = 8 * swizzle_bytes;
        descriptor = (in_shared(first) & 0x3ffff) >> 4 | eight_lines >> 4 << 32 | swizzle_128;
#endif
    }
    /* From so many chunks of each line on. */
    __device__ __forceinline__ SharedLines from_chunk(int chunks) const
    {
        SharedLines there = *this;
        there.descriptor += chunks * sizeof(Chunk) >> 4;
        return there;
    }
#else
    const Chunk *first;

    explicit SharedLines(const Chunk *first) : first(first) {}
    SharedLines from_chunk(int chunks) const
    {
        return SharedLines(first + chunks);
    }
#endif
};

/* What the registers and shared memory hold now is there for the products that follow. */
static __device__ __forceinline__ void begin_products()
{
#ifdef SGEMM_HOPPER
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_wgmma_fence(__LINE__);
#endif
}

static __device__ __forceinline__ void end_group_of_products()
{
#ifdef SGEMM_HOPPER
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_wgmma_commit(__LINE__);
#endif
}

/* Until all products are done: before, nobody may touch their sums, nor fill their tiles anew. */
static __device__ __forceinline__ void wait_for_products()
{
#ifdef SGEMM_HOPPER
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_wgmma_wait(0, __LINE__);
#endif
}

/* Has sums that were waited for read no earlier: the instruction that waits does not name them. */
static __device__ __forceinline__ void known_from_here(float (&sums)[4])
{
#ifdef SGEMM_HOPPER
    asm volatile("" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])::"memory");
#else
    (void)sums;
#endif
}

/* Begins sum += A (64 x 16) @ B (16 x N), or sum = of that if it is the `first`, for N = 128 and 192:
 * lines of A are rows, of B columns. A thread has its part of the sum as N / 8 of mma's, side by side. */
#define FOUR(i) "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
static __device__ __forceinline__ void multiply_lines(float (&sum)[16][4], const SharedLines &A,
                                                      const SharedLines &B, bool first)
{
#ifdef SGEMM_HOPPER
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.eq.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, add, 1, 1, 0, 0;\n"
                 "}"
                 : FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5), FOUR(6), FOUR(7), FOUR(8),
                   FOUR(9), FOUR(10), FOUR(11), FOUR(12), FOUR(13), FOUR(14), FOUR(15)
                 : "l"(A.descriptor), "l"(B.descriptor), "r"(static_cast<int>(first)));
#elif !defined(__CUDACC__)
    grid_wgmma(sum[0], 128, A.first, B.first, swizzle_bytes, !first, __LINE__);
#endif
}

static __device__ __forceinline__ void multiply_lines(float (&sum)[24][4], const SharedLines &A,
                                                      const SharedLines &B, bool first)
{
#ifdef SGEMM_HOPPER
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.eq.b32 add, %98, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
                 "%96, %97, add, 1, 1, 0, 0;\n"
                 "}"
                 : FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5), FOUR(6), FOUR(7), FOUR(8),
                   FOUR(9), FOUR(10), FOUR(11), FOUR(12), FOUR(13), FOUR(14), FOUR(15), FOUR(16),
                   FOUR(17), FOUR(18), FOUR(19), FOUR(20), FOUR(21), FOUR(22), FOUR(23)
                 : "l"(A.descriptor), "l"(B.descriptor), "r"(static_cast<int>(first)));
#elif !defined(__CUDACC__)
    grid_wgmma(sum[0], 192, A.first, B.first, swizzle_bytes, !first, __LINE__);
#endif
}
#undef FOUR

#endif
