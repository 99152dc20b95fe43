/* Hopper's instructions for warpgroups and clusters, for hopper.cu: as PTX, and on the CPU
 * device. */
#ifndef TESTS_NATIVE_HOPPER_H
#define TESTS_NATIVE_HOPPER_H

#include "../../csrc/gemm/kernel/ptx.h"
#include "fp16.h"

#ifdef __CUDACC__
#include <cuda.h>

typedef CUtensorMap Map;

__device__ inline unsigned char *shared_memory()
{
    extern __shared__ __align__(1024) unsigned char hopper_shared_bytes[];
    return hopper_shared_bytes;
}
#define init_barrier(barrier, arrivals)                                                            \
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(arrivals)  \
                 : "memory")
#define arrive(barrier)                                                                            \
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(smem_address(barrier)) : "memory")
#define arrive_expect(barrier, bytes)                                                              \
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem_address(barrier)), \
                 "r"(bytes)                                                                        \
                 : "memory")
__device__ inline void wait_for(const uint64_t *barrier, int parity)
{
    unsigned done;
    do {
        asm volatile("{.reg .pred done;\n"
                     "mbarrier.try_wait.parity.shared.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;}"
                     : "=r"(done)
                     : "r"(smem_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
}
#define copy_tile(to, map, barrier, x, y)                                                          \
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "    \
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(smem_address(to)),                            \
                 "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y)                              \
                 : "memory")
#define named_barrier(id, threads)                                                                 \
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory")
#define proxy_fence() asm volatile("fence.proxy.async;" ::: "memory")
#define fence_products() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define commit_products() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define wait_for_products(left)                                                                    \
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory")
#define copy_chunk(to, from)                                                                       \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_address(to)), "l"(from)    \
                 : "memory")
#define commit_copies() asm volatile("cp.async.commit_group;" ::: "memory")
#define wait_for_copies(left) asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory")

__device__ inline int cluster_rank()
{
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
#define cluster_barrier()                                                                          \
    asm volatile("barrier.cluster.arrive.release.aligned;\n"                                       \
                 "barrier.cluster.wait.acquire.aligned;" ::                                        \
                     : "memory")
__device__ inline const void *cluster_shared(const void *mine, int rank)
{
    uint64_t other;
    asm volatile("mapa.u64 %0, %1, %2;"
                 : "=l"(other)
                 : "l"(reinterpret_cast<uint64_t>(mine)), "r"(rank));
    return reinterpret_cast<const void *>(other);
}

/* wgmma's descriptor of a factor: its address, 16-byte units, a stride of eight rows, the
 * swizzle. */
template <int SWIZZLE> __device__ inline uint64_t descriptor(const void *factor)
{
    return static_cast<uint64_t>((smem_address(factor) & 0x3ffff) >> 4) | uint64_t{1} << 16 |
           static_cast<uint64_t>(8 * SWIZZLE >> 4) << 32 |
           static_cast<uint64_t>(SWIZZLE == 128 ? 1 : 2) << 62;
}
template <int SWIZZLE>
__device__ inline void multiply(float (&d)[4], const void *a, const void *b, bool accumulate)
{
    asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, "
                 "1, 1, 0, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(descriptor<SWIZZLE>(a)), "l"(descriptor<SWIZZLE>(b)),
                   "r"(static_cast<int>(accumulate)));
}
#define EIGHT(i)                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
template <int SWIZZLE>
__device__ inline void multiply(float (&d)[64], const void *a, const void *b, bool accumulate)
{
    asm volatile(
        "{.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
        "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0;}"
        : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
        : "l"(descriptor<SWIZZLE>(a)), "l"(descriptor<SWIZZLE>(b)),
          "r"(static_cast<int>(accumulate)));
}
#undef EIGHT
#else
#define __grid_constant__
typedef TensorMap Map;

inline unsigned char *shared_memory()
{
    return dynamic_shared_bytes;
}
#define init_barrier(barrier, arrivals) grid_mbarrier_init(barrier, arrivals, __LINE__)
#define arrive(barrier) grid_mbarrier_arrive(barrier, __LINE__)
#define arrive_expect(barrier, bytes) grid_mbarrier_arrive_expect(barrier, bytes, __LINE__)
#define wait_for(barrier, parity) grid_mbarrier_wait(barrier, parity, __LINE__)
#define copy_tile(to, map, barrier, x, y) grid_copy_tile(to, map, barrier, x, y, -1, __LINE__)
#define named_barrier(id, threads) grid_named_barrier(id, threads, __LINE__)
#define proxy_fence() grid_proxy_fence(__LINE__)
#define fence_products() grid_wgmma_fence(__LINE__)
#define commit_products() grid_wgmma_commit(__LINE__)
#define wait_for_products(left) grid_wgmma_wait(left, __LINE__)
#define copy_chunk(to, from) grid_copy_async(to, from, 16, __LINE__)
#define commit_copies() grid_copy_commit()
#define wait_for_copies(left) grid_copy_wait(left)
#define cluster_rank() grid_cluster_rank()
#define cluster_barrier() grid_cluster_barrier(__LINE__)
#define cluster_shared(mine, rank) grid_cluster_shared(mine, rank)

template <int SWIZZLE, int COUNT>
void multiply(float (&d)[COUNT], const void *a, const void *b, bool accumulate)
{
    grid_wgmma(d, 2 * COUNT, a, b, SWIZZLE, accumulate, __LINE__);
}
#endif

/* Layout of a TMA tile: bytes per element (2 or 4), bytes per row, swizzle in bytes or 0. */
struct Layout {
    int element_bytes, row_bytes, swizzle;
};

/* The tensor map of a rows x cols tensor with leading dimension `ld`. */
inline Map map_of(const uint16_t *data, int rows, int cols, int ld, int tile_rows,
                  const Layout &layout)
{
    const int bytes = layout.element_bytes;
#ifdef __CUDACC__
    void *encode = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault,
                                     &found);
#else
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &found);
#endif
    if (!encode || found != cudaDriverEntryPointSuccess) {
        give_up("the driver has no cuTensorMapEncodeTiled");
    }
    Map map;
    const cuuint64_t extents[] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
    const cuuint64_t pitch[] = {static_cast<cuuint64_t>(ld * bytes)};
    const cuuint32_t tile[] = {static_cast<cuuint32_t>(layout.row_bytes / bytes),
                               static_cast<cuuint32_t>(tile_rows)};
    const cuuint32_t steps[] = {1, 1};
    const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
        &map, bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
        const_cast<uint16_t *>(data), extents, pitch, tile, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        layout.swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
        : layout.swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                               : CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        give_up("a tensor map was refused");
    }
    return map;
#else
    return {data,
            static_cast<uint64_t>(cols),
            static_cast<uint64_t>(rows),
            static_cast<uint64_t>(ld * bytes),
            bytes,
            layout.row_bytes / bytes,
            tile_rows,
            layout.swizzle};
#endif
}

#endif
