/* What every rung shares: addresses, the corner of a block's tile, the epilogue; the launch and the
 * catalog entry are in launch.h.
 *
 * The same kernel file is compiled by nvcc for the GPU, or by hipcc, to which cuda/hip.h says what CUDA
 * is; by the host's compiler for the CPU device, where cpu/grid.h stands in for it; and once more to
 * count its accesses: count/counted.h. */
#ifndef SGEMM_KERNELS_KERNEL_H
#define SGEMM_KERNELS_KERNEL_H

#include <math.h>

#include "launch.h"

/* A rung that goes on from another includes its file, and has all of it but the kernel, which
 * stands behind #if THIS_RUNG: whether the file is itself what is being compiled. */
#define THIS_RUNG (__INCLUDE_LEVEL__ == 0)

/* A size that the kernel has unless it is compiled with another: `name` says which of them it is, to
 * those who look for the best, as in kernel("mine.cu", defines={"BM": 64}). That is passed on as
 * -DSGEMM_TUNED_BM=0,64; here the second of what is listed counts. */
#define TUNABLE(name, otherwise) SGEMM_SECOND_OF(SGEMM_TUNED_##name, otherwise, )
#define SGEMM_SECOND_OF(...) SGEMM_SECOND(__VA_ARGS__)
#define SGEMM_SECOND(first, second, ...) second

/* Before a loop: nvcc writes out n of its steps. A loop whose counter indexes an array in
 * registers must be written out in full, or the array moves to memory. The host's compiler,
 * which has neither problem nor registers enough, is left to vectorise as it likes. */
#ifdef __CUDACC__
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(n) PRAGMA(unroll n)
#else
#define UNROLL(n)
#endif

/* How many threads of a block go in step: a warp, which AMD calls a wavefront. A kernel that gives each
 * warp a part of C divides that by so many. */
#ifdef __AMDGCN_WAVEFRONT_SIZE
constexpr int warp_threads = __AMDGCN_WAVEFRONT_SIZE;
#else
constexpr int warp_threads = 32;
#endif

/* Has a pointer's value kept where it is: nvcc would rather work each of a row of addresses out
 * anew, from the first of them. */
#ifdef __CUDACC__
#define KEEP(pointer) asm volatile("" : "+l"(pointer))
#else
#define KEEP(pointer) (void)(pointer)
#endif

/* Has what follows from a value worked out where it is needed, not kept in registers from before. */
template <class T> static __device__ __forceinline__ void not_known_before(T &value)
{
#ifdef __CUDACC__
    static_assert(sizeof value == 4, "in one register");
    asm volatile("" : "+r"(value));
#else
    (void)value;
#endif
}

/* Has a value worked out here, not behind a branch that follows: the compiler moves there what only that needs, and
 * each result is then scaled and stored behind a branch of its own. */
static __device__ __forceinline__ void known_here(float &value)
{
#if defined(__CUDACC__) && !defined(SGEMM_HIP)
    asm volatile("" : "+f"(value));
#else
    (void)value;
#endif
}

#if defined(__CUDACC__) && !defined(SGEMM_HIP)
/* An address as the instructions for shared memory take it. */
static __device__ __forceinline__ unsigned shared_address(const void *in_shared_memory)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(in_shared_memory));
}
#endif

/* Before a function that is the body of several kernels: it is compiled as a part of each, and a
 * trace speaks of its lines. Of other functions it speaks as the line that calls them. */
#define KERNEL_BODY static __device__ inline __attribute__((always_inline))

/* a * b + c, rounded once on a GPU, and on a processor that can: by the C library it would take some
 * fifty times as long. nvcc fuses what is written so, and orders loads better among such steps than
 * among calls of fmaf; the host's compiler fuses nothing by itself. Nowhere else, but for scaled, do
 * kernels multiply and add floats. */
KERNEL_BODY float multiply_add(float a, float b, float c)
{
#if !defined(__CUDACC__) && FUSES_MULTIPLY_ADD
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* Where a kernel's launch `overlaps` the one before it on the stream. All that is left for this
 * thread is to store its results: the next kernel's blocks may come in where there is room. */
static __device__ __forceinline__ void let_next_kernel_begin()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Until the kernel before this one has stored its results, and so those before it have. */
static __device__ __forceinline__ void wait_for_kernel_before()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class T> struct Division {
    T quotient, rest;
};

/* Whole numbers divided, of which none is negative. A GPU takes a hundred cycles for it, or several hundred if they may
 * have 64 bits; with floats half of that. They are exact below 2^20: (number + 1/2) / by is at least 1/2 / by from a
 * whole number, and what is computed is off by less than 1/5 / by. On 9.0, where it was measured: the compilers for
 * some others spill registers for it. */
template <class T> static __device__ __forceinline__ Division<T> divided(T number, T by)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
    if ((number | by) < T{1} << 20) {
        const auto floats = [](T value) { return __uint2float_rn(static_cast<unsigned>(value)); };
        float one_by;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(one_by) : "f"(floats(by)));
        const T quotient = static_cast<T>(__float2uint_rz((floats(number) + 0.5f) * one_by));
        return {quotient, number - quotient * by};
    }
#endif
    return {number / by, number % by};
}

/* The address of an element of a matrix, and the element. */
static __device__ __forceinline__ float *address(const Matrix &X, int64_t row, int64_t col)
{
    return X.data + row * X.row_stride + col * X.col_stride;
}

static __device__ __forceinline__ float at(const Matrix &X, int64_t row, int64_t col)
{
    return *address(X, row, col);
}

static __device__ __forceinline__ bool inside(const Matrix &X, int64_t row, int64_t col)
{
    return row < X.rows && col < X.cols;
}

static __device__ __forceinline__ int clamped(int64_t count)
{
    return count < INT32_MAX ? static_cast<int>(count) : INT32_MAX;
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
    extern __shared__ __align__(1024) unsigned char dynamic_shared_bytes[];
#endif
    T &shared = *reinterpret_cast<T *>(dynamic_shared_bytes);
#ifdef SGEMM_COUNTED
    name_array("As", shared.As, sizeof shared.As);
    name_array("Bs", shared.Bs, sizeof shared.Bs);
#endif
    return shared;
}

/* The epilogue: C(row, col) = alpha * sum + beta * C(row, col). C is not read when beta is 0. nvcc
 * does not choose which of the two products is rounded, as it would otherwise for quads than for
 * single floats: where C lies changes no bit. Rounding alpha * sum frees the sums' registers. */
static __device__ __forceinline__ float scaled(const Sgemm &p, float sum, float c)
{
    const float product = p.alpha * sum;
#ifdef __CUDACC__
    return p.beta == 0.0f ? product : fmaf(p.beta, c, product);
#else
    return p.beta == 0.0f ? product : multiply_add(p.beta, c, product);
#endif
}

/* The results that a thread owns, counted from its first, C(row, col). */
struct Results {
    float *first;
    int rows, cols; /* left before the edges of C */
    int64_t ld;
};

static __device__ __forceinline__ Results results(const Matrix &C, int64_t row, int64_t col)
{
    return {address(C, row, col), clamped(C.rows - row), clamped(C.cols - col), C.row_stride};
}

static __device__ __forceinline__ void store(const Sgemm &p, const Results &C, int row, int col,
                                             float sum)
{
    if (row < C.rows && col < C.cols) {
        float *const c = C.first + row * C.ld + col;
        *c = scaled(p, sum, p.beta == 0.0f ? 0.0f : *c);
    }
}

#endif
