/* What `mma` asks of tensor cores: a product of halves by a warp, and the loads that bring its
 * factors from shared memory. Halves are kept as the 16 bits that they are. */
#ifndef SGEMM_KERNELS_14_TENSOR_CORES_H
#define SGEMM_KERNELS_14_TENSOR_CORES_H

#include <string.h>

#include "kernel.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SGEMM_TENSOR_CORES 1
#endif

/* Eight halves, four and four: what one copy moves, and a row of one of ldmatrix's matrices. */
struct alignas(16) Chunk {
    uint64_t fours[2];
};

/* float32 to half, to nearest even; and back, which is exact. */
static __device__ __forceinline__ uint16_t half_of(float x)
{
#ifdef __CUDACC__
    return __half_as_ushort(__float2half_rn(x));
#else
    return grid_half(x);
#endif
}

static __device__ __forceinline__ float float_of_half(uint16_t half)
{
#ifdef __CUDACC__
    return __half2float(__ushort_as_half(half));
#else
    return grid_float_of_half(half);
#endif
}

/* Four 8 x 8 matrices of halves from shared memory: each thread of the warp names a row of one, and
 * receives a pair of each. */
static __device__ __forceinline__ void load_matrices(unsigned (&pairs)[4], const Chunk *row)
{
#ifdef SGEMM_TENSOR_CORES
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
#elif !defined(__CUDACC__)
    grid_load_matrices(pairs, row, __LINE__);
#endif
}

/* sum += A (16 x 16) @ B (16 x 8), halves in, float32 out; registers as PTX has them. */
static __device__ __forceinline__ void multiply_halves(float (&sum)[4], const unsigned (&a)[4],
                                                       const unsigned (&b)[2])
{
#ifdef SGEMM_TENSOR_CORES
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif !defined(__CUDACC__)
    grid_multiply_halves(sum, a, b, __LINE__);
#endif
}

/* Begins to copy a chunk to shared memory. */
static __device__ __forceinline__ void copy_chunk_async(Chunk *to, const Chunk *from)
{
#ifdef SGEMM_TENSOR_CORES
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
#elif !defined(__CUDACC__)
    grid_copy_async(to, from, sizeof *to, __LINE__);
#endif
}

/* What this thread has begun to copy since it last said so is one group. */
static __device__ __forceinline__ void end_group_of_copies()
{
#ifdef SGEMM_TENSOR_CORES
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_copy_commit();
#endif
}

/* Until of this thread's groups all but the newest `LEFT` are there. */
template <int LEFT> static __device__ __forceinline__ void wait_for_copies()
{
#ifdef SGEMM_TENSOR_CORES
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#elif !defined(__CUDACC__)
    grid_copy_wait(LEFT);
#endif
}

#endif
