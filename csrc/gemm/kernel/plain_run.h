/* Runs a __global__ function with any parameters on the CPU device or a GPU: a plain kernel, or a
 * rung of the ladder. */
#ifndef SGEMM_PLAIN_RUN_H
#define SGEMM_PLAIN_RUN_H

#include "launch.h"

struct PlainShape {
    int64_t grid[3], block[3], shared_bytes;
};

/* One argument of the kernel, for any type of its parameter. */
struct PlainValue {
    void *pointer;
    int64_t integer;
    double real;
};

static inline PlainValue plain_pointer(float *pointer)
{
    return {pointer, 0, 0.0};
}

static inline PlainValue plain_integer(int64_t value)
{
    return {nullptr, value, static_cast<double>(value)};
}

static inline PlainValue plain_real(double value)
{
    return {nullptr, static_cast<int64_t>(value), value};
}

/* An error if no GPU accepts the shape. */
static inline Status plain_check_shape(const PlainShape &shape)
{
    const int64_t *const grid = shape.grid, *const block = shape.block;
    constexpr int64_t most_x = INT32_MAX, most_other = 65535;
    if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1 || grid[0] > most_x || grid[1] > most_other ||
        grid[2] > most_other) {
        return status_error(STATUS_INVALID,
                            "the grid is (%lld, %lld, %lld), and a GPU's is at least 1 and at most "
                            "(2147483647, 65535, 65535): change grid=",
                            static_cast<long long>(grid[0]), static_cast<long long>(grid[1]),
                            static_cast<long long>(grid[2]));
    }
    if (block[0] < 1 || block[1] < 1 || block[2] < 1 || block[0] > 1024 || block[1] > 1024 ||
        block[2] > 64 || block[0] * block[1] * block[2] > 1024) {
        return status_error(STATUS_INVALID,
                            "the block is (%lld, %lld, %lld), and a GPU's has 1 to 1024 threads, "
                            "64 at most along z: change block=",
                            static_cast<long long>(block[0]), static_cast<long long>(block[1]),
                            static_cast<long long>(block[2]));
    }
    if (shape.shared_bytes < 0 || shape.shared_bytes > 227 * 1024) {
        return status_error(STATUS_INVALID,
                            "the dynamic shared memory is %lld bytes, and a GPU's block has 0 to "
                            "232448: change shared=",
                            static_cast<long long>(shape.shared_bytes));
    }
    return status_ok();
}

template <class Type> struct PlainPointee {
    static constexpr bool pointer = false;
};
template <class Type> struct PlainPointee<Type *> {
    static constexpr bool pointer = true;
};

/* The value as the type of the kernel's parameter. */
template <class Type> static inline Type plain_argument(const PlainValue &value)
{
    if constexpr (PlainPointee<Type>::pointer) {
        return reinterpret_cast<Type>(value.pointer);
    } else if constexpr (static_cast<Type>(0.5f) == static_cast<Type>(0)) {
        return static_cast<Type>(value.integer);
    } else {
        return static_cast<Type>(value.real);
    }
}

#ifndef __CUDACC__

#ifdef SGEMM_SANITIZED
/* Only the last block of the next grids runs. */
extern bool sanitizer_last_block;

/* Tells the sanitizer the dimensions of the next grid. */
void sanitizer_grid(const int64_t *grid);
#endif

/* The blocks of the CPU device have one index. */
static __thread uint3 plain_block_index;
static __thread dim3 plain_grid_size, plain_block_size;
static __thread size_t plain_shared_bytes;

template <class... Types> struct PlainCall {
    void (*kernel)(Types...);
    const PlainValue *values;
    PlainShape shape;
};

template <int... INDEX> struct PlainIndices {};
template <int COUNT, int... INDEX>
struct PlainCounted : PlainCounted<COUNT - 1, COUNT - 1, INDEX...> {};
template <int... INDEX> struct PlainCounted<0, INDEX...> {
    typedef PlainIndices<INDEX...> List;
};

template <class... Types, int... INDEX>
static inline __attribute__((always_inline)) void plain_apply(const PlainCall<Types...> &call,
                                                              PlainIndices<INDEX...>)
{
    call.kernel(plain_argument<Types>(call.values[INDEX])...);
}

/* Sets what the kernel reads as blockIdx, gridDim and blockDim. ThreadSanitizer does not watch it,
 * since all threads of a block set the same memory to the same values. */
__attribute__((no_sanitize("thread"))) static void plain_begin_thread(const PlainShape &shape)
{
    const int64_t *const grid = shape.grid, *const block = shape.block;
#if defined(SGEMM_TRACED) && !defined(SGEMM_SANITIZED)
    plain_block_index = {0, 0, blockIdx.x}; /* only the blocks of the first tile are counted */
#else
    const auto x = static_cast<unsigned>(grid[0]), y = static_cast<unsigned>(grid[1]);
    plain_block_index = {blockIdx.x % x, blockIdx.x / x % y, blockIdx.x / x / y};
#endif
#ifdef SGEMM_SANITIZED
    if (sanitizer_last_block) {
        plain_block_index = {x - 1, y - 1, static_cast<unsigned>(grid[2]) - 1};
    }
#endif
    plain_grid_size = dim3(static_cast<unsigned>(grid[0]), static_cast<unsigned>(grid[1]),
                           static_cast<unsigned>(grid[2]));
    plain_block_size = dim3(static_cast<unsigned>(block[0]), static_cast<unsigned>(block[1]),
                            static_cast<unsigned>(block[2]));
    plain_shared_bytes = static_cast<size_t>(shape.shared_bytes);
}

/* Runs one thread. */
template <class... Types> static void plain_thread(const void *what)
{
    const auto &call = *static_cast<const PlainCall<Types...> *>(what);
    plain_begin_thread(call.shape);
    plain_apply(call, typename PlainCounted<sizeof...(Types)>::List());
}

template <class... Types>
static Status plain_run_on_cpu(void (*kernel)(Types...),
                               const PlainValue (&values)[sizeof...(Types)],
                               const PlainShape &shape, const Launch *where)
{
    const PlainCall<Types...> call = {kernel, values, shape};
#if defined(SGEMM_TRACED) && !defined(SGEMM_SANITIZED)
    const int64_t blocks = shape.grid[2];
#else
    int64_t blocks = shape.grid[0] * shape.grid[1] * shape.grid[2];
#ifdef SGEMM_SANITIZED
    blocks = sanitizer_last_block ? 1 : blocks;
#endif
    if (blocks > INT32_MAX) {
        return status_error(STATUS_INVALID,
                            "the grid has %lld blocks, more than the CPU device can number: "
                            "2147483647",
                            static_cast<long long>(blocks));
    }
#endif
#ifdef SGEMM_SANITIZED
    sanitizer_grid(shape.grid);
#endif
    return run_grid({plain_thread<Types...>, &call}, blocks,
                    dim3(static_cast<unsigned>(shape.block[0]),
                         static_cast<unsigned>(shape.block[1]),
                         static_cast<unsigned>(shape.block[2])),
                    static_cast<size_t>(shape.shared_bytes), 1,
                    where->run_inline ? in_calling_thread : usable_cores(), where->interrupt);
}
#endif

#ifdef __CUDACC__
static inline Status plain_launch_on_gpu(const void *kernel, const PlainShape &shape,
                                         void **arguments, const Launch *where)
{
    const auto size = [](const int64_t *of) {
        return dim3(static_cast<unsigned>(of[0]), static_cast<unsigned>(of[1]),
                    static_cast<unsigned>(of[2]));
    };
    const auto bytes = static_cast<size_t>(shape.shared_bytes);
    cudaError_t error = cudaSuccess;
#ifndef SGEMM_HIP
    if (bytes > 48 * 1024) { /* needs an attribute */
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes));
    }
#endif
    if (error == cudaSuccess) {
        error = cudaLaunchKernel(kernel, size(shape.grid), size(shape.block), arguments, bytes,
                                 static_cast<cudaStream_t>(where->stream));
    }
    return error == cudaSuccess ? status_ok() : launch_failed(where, error);
}
#elif defined(SGEMM_CUSTOM) && !defined(SGEMM_TRACED)
static inline Status plain_launch_on_gpu(const void *, const PlainShape &shape, void **arguments,
                                         const Launch *where)
{
    return custom_gpu->launch_shape(custom_gpu, shape.grid, shape.block, shape.shared_bytes,
                                    arguments, where);
}
#endif

/* Launches the kernel, with one value for each of its parameters. */
template <class... Types>
static Status plain_run(void (*kernel)(Types...), const PlainValue (&values)[sizeof...(Types)],
                        const PlainShape &shape, const Launch *where)
{
    const Status status = plain_check_shape(shape);
    if (status.code != STATUS_OK) {
        return status;
    }
#ifndef __CUDACC__
#if defined(SGEMM_CUSTOM) && !defined(SGEMM_TRACED)
    if (!custom_gpu)
#endif
        return plain_run_on_cpu(kernel, values, shape, where);
#endif
#if defined(__CUDACC__) || (defined(SGEMM_CUSTOM) && !defined(SGEMM_TRACED))
    /* Each argument in memory of its own type. */
    struct Slot {
        alignas(16) unsigned char bytes[16];
    } slots[sizeof...(Types)];
    void *arguments[sizeof...(Types)];
    int index = 0;
    const auto put = [&](auto value) {
        static_assert(sizeof value <= sizeof(Slot), "a parameter is larger than 16 bytes");
        arguments[index] = slots[index].bytes;
        memcpy(slots[index].bytes, &value, sizeof value);
        ++index;
    };
    (put(plain_argument<Types>(values[index])), ...);
    return plain_launch_on_gpu(reinterpret_cast<const void *>(kernel), shape, arguments, where);
#endif
}

#endif
