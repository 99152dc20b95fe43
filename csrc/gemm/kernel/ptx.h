/* Named wrappers for the PTX instructions that the rungs from async on use, each with its
 * counterpart on the CPU device. A wrapper compiles to nothing for a GPU that lacks the
 * instruction: the catalog entry's compute capability keeps such kernels from being launched
 * there. `line` is the caller's line, which the CPU device's errors name. */
#ifndef SGEMM_KERNELS_PTX_H
#define SGEMM_KERNELS_PTX_H

#include "kernel.h"
#include "tma_rows.h"

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include <cuda.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SGEMM_SM80 1
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SGEMM_SM90 1
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SGEMM_SM90A 1 /* machine code that runs on compute capability 9.0 alone */
#endif

#ifdef __CUDACC__
/* A 32-bit address within the shared memory window. */
static __device__ __forceinline__ unsigned smem_address(const void *in_shared_memory)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(in_shared_memory));
}
#endif

/* ------------------------------------------------------------------ compiler workarounds */

/* Keeps a pointer in a register. Otherwise nvcc recomputes each of a series of addresses. */
template <class T> static __device__ __forceinline__ void keep_address(T *&pointer)
{
#ifdef __CUDACC__
    asm volatile("" : "+l"(pointer));
#else
    (void)pointer;
#endif
}

/* Stops the compiler from hoisting: expressions that depend on the value are recomputed at each
 * use, which frees registers. */
template <class T> static __device__ __forceinline__ void recompute_from(T &value)
{
#ifdef __CUDACC__
    static_assert(sizeof value == 4, "in one register");
    asm volatile("" : "+r"(value));
#else
    (void)value;
#endif
}

/* One store. Otherwise the compiler may divide it into four, to share code with another branch. */
static __device__ __forceinline__ void store_whole(float *to, const float4 &vector)
{
#ifdef SGEMM_SM80
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "f"(vector.x), "f"(vector.y), "f"(vector.z), "f"(vector.w)
                 : "memory");
#else
    *reinterpret_cast<float4 *>(to) = vector;
#endif
}

/* The larger one; NaN if either is NaN. */
static __device__ __forceinline__ float max_or_nan(float a, float b)
{
#ifdef SGEMM_SM80
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#else
    return a != a || b != b ? NAN : a < b ? b : a;
#endif
}

/* The smaller one; NaN if either is NaN. */
static __device__ __forceinline__ float min_or_nan(float a, float b)
{
#ifdef SGEMM_SM80
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
#else
    return a != a || b != b ? NAN : a < b ? a : b;
#endif
}

/* ------------------------------------------------------------------ cp.async */

/* Copies one float to shared memory asynchronously. If it is not inside the matrix, writes 0 and
 * reads nothing. The L2 cache prefetches the FETCHED bytes around it. */
template <int FETCHED = 128>
static __device__ __forceinline__ void cp_async4(float *to, const float *from, bool inside,
                                                 int line = __builtin_LINE())
{
    static_assert(FETCHED == 128 || FETCHED == 256, "sizes that cp.async knows");
#ifdef SGEMM_SM80
    const unsigned address = smem_address(to);
    const int bytes = inside ? 4 : 0;
    if constexpr (FETCHED == 128) {
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(address),
                     "l"(from), "r"(bytes));
    } else {
        asm volatile("cp.async.ca.shared.global.L2::256B [%0], [%1], 4, %2;" ::"r"(address),
                     "l"(from), "r"(bytes));
    }
#elif !defined(__CUDACC__)
    grid_copy_async(to, inside ? from : nullptr, 4, line);
#endif
}

/* The same for a float4. Both addresses are multiples of 16. */
static __device__ __forceinline__ void cp_async16(float *to, const float *from, bool inside,
                                                  int line = __builtin_LINE())
{
#ifdef SGEMM_SM80
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(to)), "l"(from),
                 "r"(inside ? 16 : 0));
#elif !defined(__CUDACC__)
    grid_copy_async(to, inside ? from : nullptr, 16, line);
#endif
}

/* The same for any 16 bytes, without a guard. */
static __device__ __forceinline__ void cp_async16(void *to, const void *from,
                                                  int line = __builtin_LINE())
{
#ifdef SGEMM_SM80
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_address(to)), "l"(from)
                 : "memory");
#elif !defined(__CUDACC__)
    grid_copy_async(to, from, 16, line);
#endif
}

/* Ends this thread's current group of copies. */
static __device__ __forceinline__ void cp_async_commit()
{
#ifdef SGEMM_SM80
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_copy_commit();
#endif
}

/* Waits until at most the newest LEFT of this thread's groups are still in flight. */
template <int LEFT> static __device__ __forceinline__ void cp_async_wait()
{
#ifdef SGEMM_SM80
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#elif !defined(__CUDACC__)
    grid_copy_wait(LEFT);
#endif
}

/* ------------------------------------------------------------------ mbarrier */

/* A barrier in shared memory. A phase completes after all its arrivals and all expected bytes.
 * Phases alternate in parity; the first has parity 0. */
typedef uint64_t Mbarrier;

/* Other threads may use it after __syncthreads(); TMA may use it after fence_proxy_async(). */
static __device__ __forceinline__ void mbarrier_init(Mbarrier *barrier, int arrivals,
                                                     int line = __builtin_LINE())
{
#ifdef SGEMM_SM80
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(arrivals));
#elif !defined(__CUDACC__)
    grid_mbarrier_init(barrier, arrivals, line);
#endif
}

/* Arrives, as one thread. */
static __device__ __forceinline__ void mbarrier_arrive(Mbarrier *barrier,
                                                       int line = __builtin_LINE())
{
#ifdef SGEMM_SM90
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(smem_address(barrier)) : "memory");
#elif !defined(__CUDACC__)
    grid_mbarrier_arrive(barrier, line);
#endif
}

/* Arrives, and adds `bytes` to the bytes that the phase expects from TMA. */
static __device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier *barrier, int bytes,
                                                                 int line = __builtin_LINE())
{
#ifdef SGEMM_SM90
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem_address(barrier)),
                 "r"(bytes)
                 : "memory");
#elif !defined(__CUDACC__)
    grid_mbarrier_arrive_expect(barrier, bytes, line);
#endif
}

/* Arrives when all cp.async copies that this thread has issued so far have landed. */
static __device__ __forceinline__ void cp_async_mbarrier_arrive(Mbarrier *barrier,
                                                                int line = __builtin_LINE())
{
#ifdef SGEMM_SM80
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_address(barrier))
                 : "memory");
#elif !defined(__CUDACC__)
    grid_copy_arrive(barrier, line);
#endif
}

/* Waits until the phase of this parity is complete. On a new barrier, parity 1 returns at once. */
static __device__ __forceinline__ void mbarrier_wait(Mbarrier *barrier, int parity,
                                                     int line = __builtin_LINE())
{
#ifdef SGEMM_SM80
    unsigned done;
    do {
        asm volatile("{\n"
                     ".reg .pred done;\n"
#ifdef SGEMM_SM90
                     "mbarrier.try_wait.parity.shared.b64 done, [%1], %2;\n"
#else
                     "mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n"
#endif
                     "selp.u32 %0, 1, 0, done;\n"
                     "}"
                     : "=r"(done)
                     : "r"(smem_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
#elif !defined(__CUDACC__)
    grid_mbarrier_wait(barrier, parity, line);
#endif
}

/* A position in a ring of STAGES stages with an mbarrier each, and the parity of its phase. */
template <int STAGES> struct RingPosition {
    int index = 0, parity = 0;

    __device__ __forceinline__ void advance()
    {
        if (++index == STAGES) {
            index = 0;
            parity ^= 1;
        }
    }
};

/* Makes this thread's writes to shared memory, barriers included, visible to TMA and wgmma. */
static __device__ __forceinline__ void fence_proxy_async(int line = __builtin_LINE())
{
#ifdef SGEMM_SM90
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_proxy_fence(line);
#endif
}

/* Synchronizes `threads` threads of the block, in whole warps, at the named barrier ID (1 to
 * 15). */
template <int ID>
static __device__ __forceinline__ void bar_sync(int threads, int line = __builtin_LINE())
{
#ifdef __CUDACC__
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "r"(threads) : "memory");
#else
    grid_named_barrier(ID, threads, line);
#endif
}

/* ------------------------------------------------------------------ TMA */

/* A TMA tile with swizzled rows of 128 bytes: the 16-byte chunk c of row r is stored at chunk
 * c ^ r % 8, so that the chunks c of eight consecutive rows are in different banks. */
constexpr int swizzle_bytes = 128;

/* A matrix of `outer` rows of `inner` elements, which begin `pitch` bytes apart, and its TMA
 * tiles. */
struct TiledMatrix {
    const void *data; /* aligned to 16 bytes; the pitch is a multiple of 16, too */
    uint64_t inner, outer, pitch;
    int element_bytes;          /* 2 (float16) or 4 (float32) */
    int tile_inner, tile_outer; /* elements per row of a tile; number of rows */
    bool swizzled;              /* the rows of a tile have swizzle_bytes */
    /* For tma_load_3d: so many matrices, which begin matrix_pitch bytes apart, a multiple of 16. */
    uint64_t matrices = 0, matrix_pitch = 0;
};

#if defined(__CUDACC_RTC__)
struct alignas(64) TensorMap {
    unsigned char opaque[128];
};
#elif defined(__CUDACC__)
typedef CUtensorMap TensorMap;

/* Finds cuTensorMapEncodeTiled in the driver, which is not linked. NULL in an old driver. */
static inline decltype(&cuTensorMapEncodeTiled) find_cuTensorMapEncodeTiled()
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
        cudaGetLastError(); // clears the error
        return nullptr;
    }
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

/* Returns CUDA_ERROR_NOT_FOUND if the driver is too old for TMA. */
static inline CUresult encode_tensor_map_by_driver(TensorMap *map, const TiledMatrix &X)
{
    static const auto encode = find_cuTensorMapEncodeTiled();
    if (!encode) {
        return CUDA_ERROR_NOT_FOUND;
    }
    const cuuint64_t sizes[] = {X.inner, X.outer, X.matrices},
                     pitches[] = {X.pitch, X.matrix_pitch};
    const cuuint32_t tile[] = {static_cast<cuuint32_t>(X.tile_inner),
                               static_cast<cuuint32_t>(X.tile_outer), 1};
    const cuuint32_t steps[] = {1, 1, 1};
    return encode(map,
                  X.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                  X.matrices == 0 ? 2 : 3, const_cast<void *>(X.data), sizes, pitches, tile, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE,
                  X.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
#endif

/* Describes the matrix to TMA. Fails if the driver is too old. */
static inline Status encode_tensor_map(TensorMap *map, const TiledMatrix &X)
{
#if defined(__CUDACC_RTC__)
    (void)map, (void)X; // the host encodes
    return Status();
#elif defined(__CUDACC__)
    const CUresult result = encode_tensor_map_by_driver(map, X);
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
    *map = {X.data,          X.inner,       X.outer,      X.pitch,
            X.element_bytes, X.tile_inner,  X.tile_outer, X.swizzled ? swizzle_bytes : 0,
            X.matrices,      X.matrix_pitch};
    return status_ok();
#endif
}

/* Describes a row-major matrix of floats, with tiles of tile_rows x tile_cols. */
static inline Status encode_tensor_map(TensorMap *map, const Matrix &X, int tile_rows,
                                       int tile_cols)
{
    return encode_tensor_map(map,
                             {X.data, static_cast<uint64_t>(X.cols), static_cast<uint64_t>(X.rows),
                              static_cast<uint64_t>(X.row_stride) * sizeof(float), sizeof(float),
                              tile_cols, tile_rows, false});
}

/* Loads the TMA tile that begins at element `inner` (a multiple of 16 bytes) of row `outer`.
 * Elements beyond the matrix become 0. `to` is a multiple of 128, or of 1024 if the tile is
 * swizzled. The barrier counts all bytes of the tile. */
static __device__ __forceinline__ void tma_load_2d(void *to, const TensorMap &map, int inner,
                                                   int outer, Mbarrier *barrier,
                                                   int line = __builtin_LINE())
{
#ifdef SGEMM_SM90
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(smem_address(to)),
                 "l"(&map), "r"(inner), "r"(outer), "r"(smem_address(barrier))
                 : "memory");
#elif !defined(__CUDACC__)
    grid_copy_tile(to, &map, barrier, inner, outer, -1, line);
#endif
}

/* The same for a tile of matrix number `matrix` of TiledMatrix::matrices. */
static __device__ __forceinline__ void tma_load_3d(void *to, const TensorMap &map, int inner,
                                                   int outer, int matrix, Mbarrier *barrier,
                                                   int line = __builtin_LINE())
{
#ifdef SGEMM_SM90
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(smem_address(to)),
                 "l"(&map), "r"(inner), "r"(outer), "r"(matrix), "r"(smem_address(barrier))
                 : "memory");
#elif !defined(__CUDACC__)
    grid_copy_tile(to, &map, barrier, inner, outer, matrix, line);
#endif
}

/* Fetches the map before the first load needs it. */
static __device__ __forceinline__ void tma_prefetch(const TensorMap &map)
{
#ifdef SGEMM_SM90
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#else
    (void)map;
#endif
}

/* ------------------------------------------------------------------ tensor cores: ldmatrix, mma */

/* Loads four 8 x 8 matrices of fp16 from shared memory. Threads 0 to 7 pass the addresses of the
 * rows of the first matrix, threads 8 to 15 those of the second, and so on. Each thread gets one
 * pair of elements from each matrix. */
static __device__ __forceinline__ void ldmatrix_x4(unsigned (&pairs)[4], const void *row,
                                                   int line = __builtin_LINE())
{
#ifdef SGEMM_SM80
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(smem_address(row))
                 : "memory");
#elif !defined(__CUDACC__)
    grid_load_matrices(pairs, row, line);
#endif
}

/* Two floats, rounded to fp16, in one register: x in the lower half. */
static __device__ __forceinline__ unsigned fp16_pair(float x, float y)
{
    unsigned pair = 0;
#ifdef SGEMM_SM80
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
#elif !defined(__CUDACC__)
    pair = grid_half(x) | static_cast<unsigned>(grid_half(y)) << 16;
#endif
    return pair;
}

/* sum += A (16 x 16) @ B (16 x 8) by a warp: fp16 factors, fp32 sums. */
static __device__ __forceinline__ void mma_m16n8k16(float (&sum)[4], const unsigned (&a)[4],
                                                    const unsigned (&b)[2],
                                                    int line = __builtin_LINE())
{
#ifdef SGEMM_SM80
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif !defined(__CUDACC__)
    grid_multiply_fp16(sum, a, b, line);
#endif
}

/* ----------------------------------------------------------------- tensor cores: wgmma (sm_90a) */

/* Lowers (dec) or raises (inc) this warpgroup's registers to REGISTERS per thread. */
template <int REGISTERS> static __device__ __forceinline__ void setmaxnreg_dec()
{
#ifdef SGEMM_SM90A
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}

template <int REGISTERS> static __device__ __forceinline__ void setmaxnreg_inc()
{
#ifdef SGEMM_SM90A
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}

/* A factor of wgmma in shared memory: rows of A or columns of B, K-major, 128 bytes apart, swizzled
 * as TMA stores them. On a GPU it is a matrix descriptor. */
struct WgmmaFactor {
#ifdef __CUDACC__
    uint64_t descriptor;

    __device__ __forceinline__ explicit WgmmaFactor(const void *first)
    {
#ifdef SGEMM_SM90A
        constexpr uint64_t swizzle_128 = uint64_t{1} << 62, eight_rows = 8 * swizzle_bytes;
        descriptor = (smem_address(first) & 0x3ffff) >> 4 | eight_rows >> 4 << 32 | swizzle_128;
#endif
    }
    /* The same rows, `bytes` further along K. */
    __device__ __forceinline__ WgmmaFactor from_byte(int bytes) const
    {
        WgmmaFactor there = *this;
        there.descriptor += static_cast<uint64_t>(bytes) >> 4;
        return there;
    }
#else
    const char *first;

    explicit WgmmaFactor(const void *first) : first(static_cast<const char *>(first)) {}
    WgmmaFactor from_byte(int bytes) const
    {
        return WgmmaFactor(first + bytes);
    }
#endif
};

/* Orders this warpgroup's accesses to the accumulators before the products that follow. */
static __device__ __forceinline__ void wgmma_fence(int line = __builtin_LINE())
{
#ifdef SGEMM_SM90A
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_wgmma_fence(line);
#endif
}

/* Ends the warpgroup's current group of products. */
static __device__ __forceinline__ void wgmma_commit(int line = __builtin_LINE())
{
#ifdef SGEMM_SM90A
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_wgmma_commit(line);
#endif
}

/* Waits until at most the newest LEFT groups still run. */
template <int LEFT> static __device__ __forceinline__ void wgmma_wait(int line = __builtin_LINE())
{
#ifdef SGEMM_SM90A
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
#elif !defined(__CUDACC__)
    grid_wgmma_wait(LEFT, line);
#endif
}

/* Call it after wgmma_wait. Stops the compiler from reading the accumulators before the wait. */
static __device__ __forceinline__ void wgmma_accumulators_ready(float (&sum)[4])
{
#ifdef SGEMM_SM90A
    asm volatile("" : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])::"memory");
#else
    (void)sum;
#endif
}

/* Call it after wgmma_wait, with factors in registers. Stops the compiler from reusing the
 * registers while products may still read them. */
static __device__ __forceinline__ void wgmma_factor_read(unsigned (&a)[4])
{
#ifdef SGEMM_SM90A
    asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
#else
    (void)a;
#endif
}

/* Begins sum += A (64 x 16) @ B (16 x N) by a warpgroup, for N = 128 or 192; sum = A @ B without
 * `accumulate`. Each warp holds 16 rows in the layout of N / 8 accumulators of mma_m16n8k16. */
#define ACCUMULATORS(i)                                                                            \
    "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3]), "+f"(sum[i + 1][0]),       \
        "+f"(sum[i + 1][1]), "+f"(sum[i + 1][2]), "+f"(sum[i + 1][3])
static __device__ __forceinline__ void wgmma_k16(float (&sum)[16][4], const WgmmaFactor &A,
                                                 const WgmmaFactor &B, bool accumulate,
                                                 int line = __builtin_LINE())
{
#ifdef SGEMM_SM90A
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, add, 1, 1, 0, 0;\n"
                 "}"
                 : ACCUMULATORS(0), ACCUMULATORS(2), ACCUMULATORS(4), ACCUMULATORS(6),
                   ACCUMULATORS(8), ACCUMULATORS(10), ACCUMULATORS(12), ACCUMULATORS(14)
                 : "l"(A.descriptor), "l"(B.descriptor), "r"(static_cast<int>(accumulate)));
#elif !defined(__CUDACC__)
    grid_wgmma(sum[0], 128, A.first, B.first, swizzle_bytes, accumulate, line);
#endif
}

static __device__ __forceinline__ void wgmma_k16(float (&sum)[24][4], const WgmmaFactor &A,
                                                 const WgmmaFactor &B, bool accumulate,
                                                 int line = __builtin_LINE())
{
#ifdef SGEMM_SM90A
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %98, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
                 "%96, %97, add, 1, 1, 0, 0;\n"
                 "}"
                 : ACCUMULATORS(0), ACCUMULATORS(2), ACCUMULATORS(4), ACCUMULATORS(6),
                   ACCUMULATORS(8), ACCUMULATORS(10), ACCUMULATORS(12), ACCUMULATORS(14),
                   ACCUMULATORS(16), ACCUMULATORS(18), ACCUMULATORS(20), ACCUMULATORS(22)
                 : "l"(A.descriptor), "l"(B.descriptor), "r"(static_cast<int>(accumulate)));
#elif !defined(__CUDACC__)
    grid_wgmma(sum[0], 192, A.first, B.first, swizzle_bytes, accumulate, line);
#endif
}
/* The same with A in registers: each warp holds 16 rows, in the layout of mma_m16n8k16's A. */
static __device__ __forceinline__ void wgmma_k16(float (&sum)[8][4], const unsigned (&a)[4],
                                                 const WgmmaFactor &B, bool accumulate,
                                                 int line = __builtin_LINE())
{
#ifdef SGEMM_SM90A
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, add, 1, 1, 0;\n"
                 "}"
                 : ACCUMULATORS(0), ACCUMULATORS(2), ACCUMULATORS(4), ACCUMULATORS(6)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(B.descriptor),
                   "r"(static_cast<int>(accumulate)));
#elif !defined(__CUDACC__)
    grid_wgmma_registers(sum[0], 64, a, B.first, swizzle_bytes, accumulate, line);
#endif
}

static __device__ __forceinline__ void wgmma_k16(float (&sum)[16][4], const unsigned (&a)[4],
                                                 const WgmmaFactor &B, bool accumulate,
                                                 int line = __builtin_LINE())
{
#ifdef SGEMM_SM90A
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, add, 1, 1, 0;\n"
                 "}"
                 : ACCUMULATORS(0), ACCUMULATORS(2), ACCUMULATORS(4), ACCUMULATORS(6),
                   ACCUMULATORS(8), ACCUMULATORS(10), ACCUMULATORS(12), ACCUMULATORS(14)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(B.descriptor),
                   "r"(static_cast<int>(accumulate)));
#elif !defined(__CUDACC__)
    grid_wgmma_registers(sum[0], 128, a, B.first, swizzle_bytes, accumulate, line);
#endif
}
#undef ACCUMULATORS

/* ---------------------------------------------------------------- programmatic dependent launch */

/* Lets the next kernel on the stream begin. Call it when only results are left to store. */
static __device__ __forceinline__ void griddep_launch_dependents()
{
#ifdef SGEMM_SM90
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Waits until the previous kernel on the stream has stored its results. */
static __device__ __forceinline__ void griddep_wait()
{
#ifdef SGEMM_SM90
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
