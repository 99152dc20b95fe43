/* What every rung shares: places, guarded loads, the epilogue, the launch, the catalog entry.
 *
 * The same kernel file is compiled by nvcc for the GPU, by the host's compiler for the CPU device,
 * where cpu/grid.h stands in for CUDA, and once more to count its accesses: count/counted.h. */
#ifndef SGEMM_KERNELS_KERNEL_H
#define SGEMM_KERNELS_KERNEL_H

#include <math.h>
#include <stdlib.h>

#ifndef __CUDACC__
#include "../core/threads.h"
#include "../cpu/grid.h"
#endif
#include "../core/sgemm.h"
#include "../core/variant.h"
#ifdef SGEMM_COUNTED
#include "../count/counted.h"
#endif

/* Before a loop: nvcc writes out n of its steps. A loop whose counter indexes an array in
 * registers must be written out in full, or the array moves to memory. The host's compiler,
 * which has neither problem nor registers enough, is left to vectorise as it likes. */
#ifdef __CUDACC__
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(n) PRAGMA(unroll n)
#else
#define UNROLL(n)
#endif

/* Has a pointer's value kept where it is: nvcc would rather work each of a row of addresses out anew,
 * from the first of them. */
#ifdef __CUDACC__
#define KEEP(pointer) asm volatile("" : "+l"(pointer))
#else
#define KEEP(pointer) (void)(pointer)
#endif

/* Before a function that is the body of several kernels: it is compiled as a part of each, and a
 * trace speaks of its lines. Of other functions it speaks as the line that calls them. */
#define KERNEL_BODY static __device__ inline __attribute__((always_inline))

/* ------------------------------------------------------------------ on the device */

/* Where an element of a matrix lies, and the element. */
static __device__ __forceinline__ float *place(const Matrix &X, int64_t row, int64_t col)
{
    return X.data + row * X.row_stride + col * X.col_stride;
}

static __device__ __forceinline__ float at(const Matrix &X, int64_t row, int64_t col)
{
    return *place(X, row, col);
}

static __device__ __forceinline__ bool inside(const Matrix &X, int64_t row, int64_t col)
{
    return row < X.rows && col < X.cols;
}

static __device__ __forceinline__ int clamped(int64_t count)
{
    return count < INT32_MAX ? static_cast<int>(count) : INT32_MAX;
}

/* One element of each of an operand's tiles, from one tile to the next along K. */
struct Cursor {
    const float *here;
    int64_t step; /* to the next tile */
    int k;        /* within the tile; INT32_MAX for an element beyond the edge of the matrix */

    /* The element, or 0 beyond the edges, where it adds nothing to a product; then goes on to
     * the next tile. `depth` is what is left of K from this tile's beginning on. */
    __device__ __forceinline__ float take(int depth)
    {
        const float value = k < depth ? *here : 0.0f;
        here += step;
        return value;
    }
};

static __device__ __forceinline__ Cursor cursor_of_A(const Matrix &A, int64_t row, int k,
                                                     int tile_depth)
{
    return {place(A, row, k), tile_depth * A.col_stride, row < A.rows ? k : INT32_MAX};
}

static __device__ __forceinline__ Cursor cursor_of_B(const Matrix &B, int k, int64_t col,
                                                     int tile_depth)
{
    return {place(B, k, col), tile_depth * B.row_stride, col < B.cols ? k : INT32_MAX};
}

/* The first row and column of C of this block's tile. Blocks are numbered along the rows of
 * tiles, in one dimension: a grid's second dimension ends at 65,535. */
struct Origin {
    int64_t row, col;
};

static __device__ __forceinline__ Origin tile_origin(const Matrix &C, int block_rows,
                                                     int block_cols)
{
    const unsigned tiles_in_row = static_cast<unsigned>((C.cols + block_cols - 1) / block_cols);
    return {static_cast<int64_t>(blockIdx.x / tiles_in_row) * block_rows,
            static_cast<int64_t>(blockIdx.x % tiles_in_row) * block_cols};
}

/* The block's dynamic shared memory as one T, of which the launch gives sizeof(T) bytes. Its arrays
 * are As and Bs, by which a trace knows them. */
template <class T> static __device__ __forceinline__ T &dynamic_shared()
{
#ifdef __CUDACC__
    extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[];
#endif
    T &shared = *reinterpret_cast<T *>(dynamic_shared_bytes);
#ifdef SGEMM_COUNTED
    name_array("As", shared.As, sizeof shared.As);
    name_array("Bs", shared.Bs, sizeof shared.Bs);
#endif
    return shared;
}

/* The epilogue: C(row, col) = alpha * sum + beta * C(row, col). C is not read when beta is 0. The
 * compiler does not choose which of the two products is rounded, as it would otherwise for quads than
 * for single floats: where C lies changes no bit. Rounding alpha * sum frees the sums' registers. */
static __device__ __forceinline__ float scaled(const Sgemm &p, float sum, float c)
{
    return p.beta == 0.0f ? p.alpha * sum : fmaf(p.beta, c, p.alpha * sum);
}

/* The results that a thread owns, counted from its first, C(row, col). */
struct Results {
    float *first;
    int rows, cols; /* left before the edges of C */
    int64_t ld;
};

static __device__ __forceinline__ Results results(const Matrix &C, int64_t row, int64_t col)
{
    return {place(C, row, col), clamped(C.rows - row), clamped(C.cols - col), C.row_stride};
}

static __device__ __forceinline__ void store(const Sgemm &p, const Results &C, int row, int col,
                                             float sum)
{
    if (row < C.rows && col < C.cols) {
        float *const c = C.first + row * C.ld + col;
        *c = scaled(p, sum, p.beta == 0.0f ? 0.0f : *c);
    }
}

/* ------------------------------------------------------------------ on the host */

/* Memory that one launch needs beside its operands: see ../scratch.h. */
#ifdef __CUDACC__
#include "../core/scratch.h"
#else
static inline Status scratch_take(size_t bytes, const Launch *, void **memory)
{
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *memory ? status_ok()
                   : status_error(STATUS_OUT_OF_MEMORY, "no memory for %.3f GB",
                                  static_cast<double>(bytes) / 1e9);
}

static inline void scratch_give(void *memory, const Launch *)
{
    free(memory);
}
#endif

typedef void Kernel(Sgemm);

#ifdef __CUDACC__
static inline Status not_launched(cudaError_t error)
{
    return status_error(STATUS_DEVICE, "the kernel could not be launched: %s",
                        cudaGetErrorString(error));
}
#endif

/* Launches a grid of one dimension, with shared_bytes of dynamic shared memory for each block. */
template <class Problem>
static inline Status launch_blocks(void (*kernel)(Problem), int64_t blocks, dim3 threads,
                                   size_t shared_bytes, const Problem &problem, const Launch *where)
{
    if (blocks > INT32_MAX) {
        return status_error(STATUS_INVALID,
                            "the result needs %lld blocks, more than the 2147483647 of one grid",
                            static_cast<long long>(blocks));
    }
#ifdef __CUDACC__
    /* More than 48 KiB a kernel must ask for. What either call refuses is the last error. */
    if (shared_bytes <= 48 * 1024 ||
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)) == cudaSuccess) {
        kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes,
                 static_cast<cudaStream_t>(where->stream)>>>(problem);
    }
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? status_ok() : not_launched(error);
#else
    const KernelCall<Problem> call = {kernel, &problem};
    return run_grid({call_kernel<Problem>, &call}, blocks, threads, shared_bytes, usable_cores(),
                    where->interrupt);
#endif
}

/* How many block_rows x block_cols tiles cover C. */
static inline __host__ __device__ int64_t tiles_of(const Matrix &C, int block_rows, int block_cols)
{
    return ((C.rows + block_rows - 1) / block_rows) * ((C.cols + block_cols - 1) / block_cols);
}

/* Launches one block for each block_rows x block_cols tile of C. */
static inline Status launch_tiles(Kernel *kernel, int block_rows, int block_cols, dim3 threads,
                                  const Sgemm *problem, const Launch *where)
{
    return launch_blocks(kernel, tiles_of(problem->C, block_rows, block_cols), threads, 0, *problem,
                         where);
}

/* How many multiprocessors the device has; the CPU device stands for one of eight. */
static inline int multiprocessors_of(const Launch *where)
{
#ifdef __CUDACC__
    int count = 1;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, where->device);
    return count;
#else
    (void)where;
    return 8;
#endif
}

/* The catalog entry. The host's compilation defines it, nvcc's only the launcher that it names. */
#ifdef __CUDACC__
#define LAUNCHER(name)                                                                             \
    extern "C" Status launch_##name##_cuda(const Sgemm *problem, const Launch *where)
#define VARIANT(name, ...) static_assert(true, "")
#else
#define LAUNCHER(name) static Status launch_##name##_cpu(const Sgemm *problem, const Launch *where)
#if defined(SGEMM_COUNTED)
#define VARIANT(name, ...) COUNTED_VARIANT(name, __VA_ARGS__)
#elif defined(SGEMM_CUDA)
#define VARIANT(name, ...)                                                                         \
    extern "C" Launcher launch_##name##_cuda;                                                      \
    extern "C" const Variant variant_##name = {                                                    \
        #name, __VA_ARGS__, {launch_##name##_cpu, launch_##name##_cuda}}
#else
#define VARIANT(name, ...)                                                                         \
    extern "C" const Variant variant_##name = {#name, __VA_ARGS__, {launch_##name##_cpu, nullptr}}
#endif
#endif

#endif
