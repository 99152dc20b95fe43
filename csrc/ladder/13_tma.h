/* What is left of tma when 13_tma.cu is understood: barriers that count bytes as well, and TMA, which brings
 * a box of a matrix by itself. Of GPUs of compute capability 9.0 or newer. */
#ifndef SGEMM_KERNELS_13_TMA_H
#define SGEMM_KERNELS_13_TMA_H

#include "09_barrier.h"

#ifdef __CUDACC__
#include <cuda.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SGEMM_TMA 1
#endif

/* ------------------------------------------------------------------ barriers */

/* What this thread has written to shared memory, barriers included, is there for TMA. */
static __device__ __forceinline__ void show_to_tma()
{
#ifdef SGEMM_TMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_proxy_fence(__LINE__);
#endif
}

static __device__ __forceinline__ void barrier_arrive(Barrier *barrier)
{
#ifdef SGEMM_TMA
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#elif !defined(__CUDACC__)
    grid_mbarrier_arrive(barrier, __LINE__);
#endif
}

/* Arrives, and has the phase wait for so many bytes that copies bring. */
static __device__ __forceinline__ void barrier_arrive_expecting(Barrier *barrier, int bytes)
{
#ifdef SGEMM_TMA
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
#elif !defined(__CUDACC__)
    grid_mbarrier_arrive_expect(barrier, bytes, __LINE__);
#endif
}

/* ------------------------------------------------------------------ TMA */

/* Of a swizzled box, whose rows have that many bytes, eight rows have their chunks of 16 bytes in different
 * orders: chunk c of row r lies where c ^ r % 8 would. */
constexpr int swizzle_bytes = 128;

#ifdef __CUDACC__
typedef CUtensorMap TensorMap;
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

/* A matrix as TMA is told of it, and the boxes that it is to bring: `outer` rows that begin `pitch` bytes
 * apart, of `inner` elements, each of 2 bytes (float16) or 4 (float32). */
struct Boxes {
    const void *data; /* aligned to 16 bytes, as the pitch is */
    uint64_t inner, outer, pitch;
    int element_bytes;
    int box_inner, box_outer;
    bool swizzled; /* a row of a box has swizzle_bytes */
};

#ifdef __CUDACC__
/* CUDA_ERROR_NOT_FOUND where the driver knows no TMA. */
static inline CUresult encode_boxes(TensorMap *map, const Boxes &X)
{
    static const EncodeTensorMap encode = find_encode();
    if (!encode) {
        return CUDA_ERROR_NOT_FOUND;
    }
    const cuuint64_t sizes[] = {X.inner, X.outer}, pitches[] = {X.pitch};
    const cuuint32_t box[] = {static_cast<cuuint32_t>(X.box_inner),
                              static_cast<cuuint32_t>(X.box_outer)};
    const cuuint32_t steps[] = {1, 1};
    return encode(
        map,
        X.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
        const_cast<void *>(X.data), sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        X.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
#endif

/* Fails where the driver knows no TMA. */
static inline Status describe_boxes(TensorMap *map, const Boxes &X)
{
#ifdef __CUDACC__
    const CUresult result = encode_boxes(map, X);
    if (result == CUDA_ERROR_NOT_FOUND) {
        return status_error(STATUS_DEVICE, "the driver has no cuTensorMapEncodeTiled: version 12.0 "
                                           "or newer is needed");
    }
    return result == CUDA_SUCCESS
               ? status_ok()
               : status_error(STATUS_DEVICE,
                              "cuTensorMapEncodeTiled refused a matrix: error %d of the driver",
                              static_cast<int>(result));
#else
    *map = {X.data,          X.inner,     X.outer,     X.pitch,
            X.element_bytes, X.box_inner, X.box_outer, X.swizzled ? swizzle_bytes : 0};
    return status_ok();
#endif
}

/* Begins to copy the box whose first element is the one at `inner` of the row `outer` to shared memory, at a
 * multiple of 128 bytes, or of 1024 if it is swizzled; `inner` of a multiple of 16 bytes. What lies beyond
 * the matrix becomes zero. All bytes of the box are counted by the barrier. */
static __device__ __forceinline__ void bring_box(void *to, const TensorMap &map, int inner,
                                                 int outer, Barrier *barrier)
{
#ifdef SGEMM_TMA
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(&map), "r"(inner), "r"(outer), "r"(shared_address(barrier))
                 : "memory");
#elif !defined(__CUDACC__)
    grid_copy_box(to, &map, barrier, inner, outer, __LINE__);
#endif
}

#endif
