/* Plain CUDA kernels: any __global__ function of pointers, sizes and scalars.
 *
 * sgemm_kernels/custom/plain_launcher.py generates a launcher that calls plain_launch with the
 * kernel's facts. Operands that the kernel cannot read as they lie are copied first. */
#ifndef SGEMM_PLAIN_H
#define SGEMM_PLAIN_H

#include "../kernel/launch.h"
#include "plain_host.h"

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

/* Functions, since the file may have macros with these names. */
static inline int64_t plain_M_of(const PlainProblem *problem)
{
    return problem->M;
}
static inline int64_t plain_N_of(const PlainProblem *problem)
{
    return problem->N;
}
static inline int64_t plain_K_of(const PlainProblem *problem)
{
    return problem->K;
}
static inline double plain_alpha_of(const PlainProblem *problem)
{
    return static_cast<double>(problem->alpha);
}
static inline double plain_beta_of(const PlainProblem *problem)
{
    return static_cast<double>(problem->beta);
}
static inline float *plain_A_of(const PlainProblem *problem)
{
    return problem->A;
}
static inline float *plain_B_of(const PlainProblem *problem)
{
    return problem->B;
}
static inline float *plain_C_of(const PlainProblem *problem)
{
    return problem->C;
}

/* The operations of grid and block expressions. A division by zero gives 0, which is refused. */
static inline int64_t plain_down(int64_t a, int64_t b)
{
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t plain_up(int64_t a, int64_t b)
{
    return -plain_down(-a, b);
}
static inline int64_t plain_rest(int64_t a, int64_t b)
{
    return a - b * plain_down(a, b);
}
static inline int64_t plain_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t plain_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
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
/* Only the last block runs: see large.cpp. */
extern "C" bool plain_last_block;

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

/* Runs one thread. */
template <class... Types> static void plain_thread(const void *what)
{
    const auto &call = *static_cast<const PlainCall<Types...> *>(what);
    const int64_t *const grid = call.shape.grid, *const block = call.shape.block;
#if defined(SGEMM_COUNTED) && !defined(SGEMM_SANITIZED)
    plain_block_index = {0, 0, blockIdx.x}; /* only the blocks of the first tile are counted */
#else
    const auto x = static_cast<unsigned>(grid[0]), y = static_cast<unsigned>(grid[1]);
    plain_block_index = {blockIdx.x % x, blockIdx.x / x % y, blockIdx.x / x / y};
#endif
#ifdef SGEMM_SANITIZED
    if (plain_last_block) {
        plain_block_index = {x - 1, y - 1, static_cast<unsigned>(grid[2]) - 1};
    }
#endif
    plain_grid_size = dim3(static_cast<unsigned>(grid[0]), static_cast<unsigned>(grid[1]),
                           static_cast<unsigned>(grid[2]));
    plain_block_size = dim3(static_cast<unsigned>(block[0]), static_cast<unsigned>(block[1]),
                            static_cast<unsigned>(block[2]));
    plain_shared_bytes = static_cast<size_t>(call.shape.shared_bytes);
    plain_apply(call, typename PlainCounted<sizeof...(Types)>::List());
}

#endif

/* Launches the kernel, with one value for each of its parameters. */
template <class... Types>
static Status plain_run(void (*kernel)(Types...), const PlainValue (&values)[sizeof...(Types)],
                        const PlainShape &shape, const Launch *where)
{
    const Status status = plain_check_shape(&shape);
    if (status.code != STATUS_OK) {
        return status;
    }
#ifndef __CUDACC__
#ifdef SGEMM_CUSTOM
    const bool on_gpu = custom_gpu != nullptr;
#else
    const bool on_gpu = false;
#endif
    if (!on_gpu) {
        const PlainCall<Types...> call = {kernel, values, shape};
#if defined(SGEMM_COUNTED) && !defined(SGEMM_SANITIZED)
        const int64_t blocks = shape.grid[2];
#else
        int64_t blocks = shape.grid[0] * shape.grid[1] * shape.grid[2];
#ifdef SGEMM_SANITIZED
        blocks = plain_last_block ? 1 : blocks;
#endif
        if (blocks > INT32_MAX) {
            return status_error(STATUS_INVALID,
                                "the grid has %lld blocks, more than the CPU "
                                "device can number: 2147483647",
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
    return plain_launch_on_gpu(reinterpret_cast<const void *>(kernel), &shape, arguments, where);
}

#endif
