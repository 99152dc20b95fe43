/* What `wgmma` asks of a GPU of compute capability 9.0: products that a warpgroup (four warps) takes
 * straight from shared memory, and registers that warpgroups hand each other. That is machine code for
 * sm_90a, which runs on no newer GPU. */
#ifndef SGEMM_KERNELS_15_HOPPER_H
#define SGEMM_KERNELS_15_HOPPER_H

#include "13_tma.h"
#include "14_halves.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SGEMM_HOPPER 1
#elif defined(__CUDA_ARCH__)
#error "this is for sm_90a alone: nvcc -gencode=arch=compute_90a,code=sm_90a"
#endif

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

/* Describes an operand in halves, to be brought in boxes of so many lines by a block of 32 of the
 * depth, swizzled. */
static inline Status describe_halves(TensorMap *map, const Halves &X, int box_lines)
{
    const auto lines = static_cast<uint64_t>(X.groups) * group_lines;
    const auto pitch = static_cast<uint64_t>(X.pitch()) * sizeof(Chunk);
    constexpr int bytes = sizeof(uint16_t);
    return describe_boxes(
        map, {X.lines, pitch / bytes, lines, pitch, bytes, swizzle_bytes / bytes, box_lines, true});
}

/* Begins to bring the box of the lines from `line` on and of this block of the depth. */
static __device__ __forceinline__ void bring_halves(Chunk *to, const TensorMap &map, int line,
                                                    int block, Barrier *barrier)
{
    bring_box(to, map, block * (swizzle_bytes / static_cast<int>(sizeof(uint16_t))), line, barrier);
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
        descriptor = (shared_address(first) & 0x3ffff) >> 4 | eight_lines >> 4 << 32 | swizzle_128;
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
