/* Warpgroup products of two 16-bit factors in shared memory, each fp16 or bf16, and K-major or
 * MN-major (sm_90a). */
#ifndef SGEMM_KERNELS_WGMMA_16BIT_H
#define SGEMM_KERNELS_WGMMA_16BIT_H

#include "ptx.h"

/* How wgmma reads its factors. */
template <ElementType ELEMENT, bool A_MN_MAJOR, bool B_MN_MAJOR> struct FactorLayouts {
    static constexpr ElementType element = ELEMENT;
    static constexpr bool a_mn_major = A_MN_MAJOR, b_mn_major = B_MN_MAJOR;
};

/* Steps of K in a TMA tile of an operand, and its rows or columns if it is MN-major. */
constexpr int mn_tile = swizzle_bytes / 2, mn_tile_depth = 64;
constexpr int mn_tile_bytes = mn_tile_depth * swizzle_bytes;

/* A factor in shared memory, from the first line (row of A, column of B) on. K-major: 128 bytes of
 * each line follow each other. MN-major: 128 bytes of 64 lines for each of 64 steps of K, and then
 * the next 64 lines. Both are swizzled as TMA stores them. */
template <bool MN_MAJOR> __device__ __forceinline__ WgmmaFactor factor_16bit(const void *first)
{
    WgmmaFactor factor(first);
#ifdef SGEMM_SM90A
    if (MN_MAJOR) {
        factor.descriptor |= uint64_t{mn_tile_bytes >> 4} << 16;
    }
#endif
    return factor;
}

/* The same lines, k steps of K further. k is a multiple of 16. */
template <bool MN_MAJOR>
__device__ __forceinline__ WgmmaFactor from_step(const WgmmaFactor &factor, int k)
{
    return factor.from_byte(MN_MAJOR ? k * swizzle_bytes : k * 2);
}

/* Begins sum += A (64 x 16) @ B (16 x N) by a warpgroup, for N = 128 or 192; sum = A @ B without
 * `accumulate`. */
#define ACCUMULATORS(i)                                                                            \
    "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3]), "+f"(sum[i + 1][0]),       \
        "+f"(sum[i + 1][1]), "+f"(sum[i + 1][2]), "+f"(sum[i + 1][3])
#define SUMS_128                                                                                   \
    ACCUMULATORS(0), ACCUMULATORS(2), ACCUMULATORS(4), ACCUMULATORS(6), ACCUMULATORS(8),           \
        ACCUMULATORS(10), ACCUMULATORS(12), ACCUMULATORS(14)
#define PRODUCT_128(TYPE)                                                                          \
    "{\n"                                                                                          \
    ".reg .pred add;\n"                                                                            \
    "setp.ne.b32 add, %66, 0;\n"                                                                   \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "                       \
    "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "                       \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "                       \
    "%58, %59, %60, %61, %62, %63}, "                                                              \
    "%64, %65, add, 1, 1, %67, %68;\n"                                                             \
    "}"
template <class Layouts>
static __device__ __forceinline__ void wgmma_16bit(float (&sum)[16][4], const WgmmaFactor &A,
                                                   const WgmmaFactor &B, bool accumulate,
                                                   int line = __builtin_LINE())
{
#ifdef SGEMM_SM90A
    if (Layouts::element == ELEMENT_BFLOAT16) {
        asm volatile(PRODUCT_128("bf16")
                     : SUMS_128
                     : "l"(A.descriptor), "l"(B.descriptor), "r"(static_cast<int>(accumulate)),
                       "n"(Layouts::a_mn_major ? 1 : 0), "n"(Layouts::b_mn_major ? 1 : 0));
    } else {
        asm volatile(PRODUCT_128("f16")
                     : SUMS_128
                     : "l"(A.descriptor), "l"(B.descriptor), "r"(static_cast<int>(accumulate)),
                       "n"(Layouts::a_mn_major ? 1 : 0), "n"(Layouts::b_mn_major ? 1 : 0));
    }
#elif !defined(__CUDACC__)
    const HalfFormat format =
        Layouts::element == ELEMENT_BFLOAT16 ? HalfFormat::bf16 : HalfFormat::fp16;
    grid_wgmma(sum[0], 128, A.first, B.first, swizzle_bytes, accumulate, line,
               {format, Layouts::a_mn_major, Layouts::b_mn_major, mn_tile_bytes});
#endif
}

#define SUMS_192                                                                                   \
    ACCUMULATORS(0), ACCUMULATORS(2), ACCUMULATORS(4), ACCUMULATORS(6), ACCUMULATORS(8),           \
        ACCUMULATORS(10), ACCUMULATORS(12), ACCUMULATORS(14), ACCUMULATORS(16), ACCUMULATORS(18),  \
        ACCUMULATORS(20), ACCUMULATORS(22)
#define PRODUCT_192(TYPE)                                                                          \
    "{\n"                                                                                          \
    ".reg .pred add;\n"                                                                            \
    "setp.ne.b32 add, %98, 0;\n"                                                                   \
    "wgmma.mma_async.sync.aligned.m64n192k16.f32." TYPE "." TYPE " {"                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "                       \
    "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "                       \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "                       \
    "%58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "                       \
    "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "                       \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "                                          \
    "%96, %97, add, 1, 1, %99, %100;\n"                                                            \
    "}"
template <class Layouts>
static __device__ __forceinline__ void wgmma_16bit(float (&sum)[24][4], const WgmmaFactor &A,
                                                   const WgmmaFactor &B, bool accumulate,
                                                   int line = __builtin_LINE())
{
#ifdef SGEMM_SM90A
    if (Layouts::element == ELEMENT_BFLOAT16) {
        asm volatile(PRODUCT_192("bf16")
                     : SUMS_192
                     : "l"(A.descriptor), "l"(B.descriptor), "r"(static_cast<int>(accumulate)),
                       "n"(Layouts::a_mn_major ? 1 : 0), "n"(Layouts::b_mn_major ? 1 : 0));
    } else {
        asm volatile(PRODUCT_192("f16")
                     : SUMS_192
                     : "l"(A.descriptor), "l"(B.descriptor), "r"(static_cast<int>(accumulate)),
                       "n"(Layouts::a_mn_major ? 1 : 0), "n"(Layouts::b_mn_major ? 1 : 0));
    }
#elif !defined(__CUDACC__)
    const HalfFormat format =
        Layouts::element == ELEMENT_BFLOAT16 ? HalfFormat::bf16 : HalfFormat::fp16;
    grid_wgmma(sum[0], 192, A.first, B.first, swizzle_bytes, accumulate, line,
               {format, Layouts::a_mn_major, Layouts::b_mn_major, mn_tile_bytes});
#endif
}

#undef ACCUMULATORS
#undef SUMS_128
#undef PRODUCT_128
#undef SUMS_192
#undef PRODUCT_192

#endif
