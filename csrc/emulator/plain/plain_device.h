/* What CUDA's headers give device code, for plain kernels on the CPU device. Included after
 * plain.h, before the user's text. */
#ifndef SGEMM_PLAIN_DEVICE_H
#define SGEMM_PLAIN_DEVICE_H

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <type_traits>

/* ------------------------------------------------------------------ qualifiers */

#ifdef SGEMM_TRACED
/* An access in a helper is attributed to its own line, not to the line that calls the helper: the
 * compiler inlines what these mark. The sanitizer itself reports the helper's line, and orders
 * accesses by the lines of the calls. */
#undef __device__
#ifdef SGEMM_SANITIZED
#define __device__ __attribute__((noinline))
#else
#define __device__ __attribute__((always_inline))
#endif
#undef __global__
#define __global__ __attribute__((noinline))
#undef __forceinline__
#define __forceinline__ inline
#endif
#define __noinline__
#define __constant__
#define __inline_hint__

#define blockIdx plain_block_index
#define gridDim plain_grid_size
#define blockDim plain_block_size
static constexpr int warpSize = 32;

/* ------------------------------------------------------------------ vector types */

#define PLAIN_VECTORS(T, name, of1, of2)                                                           \
    struct alignas(of1) name##1                                                                    \
    {                                                                                              \
        T x;                                                                                       \
    };                                                                                             \
    struct alignas(of2) name##2                                                                    \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    static inline name##1 make_##name##1(T x)                                                      \
    {                                                                                              \
        return {x};                                                                                \
    }                                                                                              \
    static inline name##2 make_##name##2(T x, T y)                                                 \
    {                                                                                              \
        return {x, y};                                                                             \
    }
#define PLAIN_VECTOR3(T, name)                                                                     \
    struct name##3                                                                                 \
    {                                                                                              \
        T x, y, z;                                                                                 \
    };                                                                                             \
    static inline name##3 make_##name##3(T x, T y, T z)                                            \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }
#define PLAIN_VECTOR4(T, name, of4)                                                                \
    struct alignas(of4) name##4                                                                    \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline name##4 make_##name##4(T x, T y, T z, T w)                                       \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
PLAIN_VECTORS(float, float, 4, 8)
PLAIN_VECTOR3(float, float)
PLAIN_VECTORS(double, double, 8, 16)
PLAIN_VECTOR3(double, double)
PLAIN_VECTOR4(double, double, 16)
PLAIN_VECTORS(int, int, 4, 8)
PLAIN_VECTOR3(int, int)
PLAIN_VECTOR4(int, int, 16)
PLAIN_VECTORS(unsigned, uint, 4, 8)
PLAIN_VECTOR4(unsigned, uint, 16)
PLAIN_VECTORS(short, short, 2, 4)
PLAIN_VECTOR4(short, short, 8)
PLAIN_VECTORS(unsigned short, ushort, 2, 4)
PLAIN_VECTOR4(unsigned short, ushort, 8)
PLAIN_VECTORS(char, char, 1, 2)
PLAIN_VECTOR4(char, char, 4)
PLAIN_VECTORS(unsigned char, uchar, 1, 2)
PLAIN_VECTOR4(unsigned char, uchar, 4)
PLAIN_VECTORS(long long, longlong, 8, 16)
PLAIN_VECTORS(unsigned long long, ulonglong, 8, 16)

static inline uint3 make_uint3(unsigned x, unsigned y, unsigned z)
{
    return {x, y, z};
}

/* ------------------------------------------------------------------ functions */

#define __ldg(address) (*(address))
#define __ldca(address) (*(address))
#define __ldcg(address) (*(address))
#define __ldcs(address) (*(address))
#define __ldlu(address) (*(address))
#define __ldcv(address) (*(address))
#define __stcg(address, value) (void)(*(address) = (value))
#define __stcs(address, value) (void)(*(address) = (value))
#define __stwb(address, value) (void)(*(address) = (value))
#define __stwt(address, value) (void)(*(address) = (value))

template <class T, class U> static inline constexpr std::common_type_t<T, U> min(T a, U b)
{
    return static_cast<std::common_type_t<T, U>>(b) < static_cast<std::common_type_t<T, U>>(a)
               ? static_cast<std::common_type_t<T, U>>(b)
               : static_cast<std::common_type_t<T, U>>(a);
}
template <class T, class U> static inline constexpr std::common_type_t<T, U> max(T a, U b)
{
    return static_cast<std::common_type_t<T, U>>(a) < static_cast<std::common_type_t<T, U>>(b)
               ? static_cast<std::common_type_t<T, U>>(b)
               : static_cast<std::common_type_t<T, U>>(a);
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fmaf_rz(float a, float b, float c)
{
    return fmaf(a, b, c);
}
/* Plain kernels are compiled with fused multiply-add, as by nvcc. These three are never fused. */
static inline float plain_not_fused(float x)
{
    __asm__("" : "+m"(x));
    return x;
}
static inline float __fadd_rn(float a, float b)
{
    return plain_not_fused(a) + plain_not_fused(b);
}
static inline float __fsub_rn(float a, float b)
{
    return plain_not_fused(a) - plain_not_fused(b);
}
static inline float __fmul_rn(float a, float b)
{
    return plain_not_fused(a * b);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float rsqrtf(float a)
{
    return 1.0f / sqrtf(a);
}
static inline float __saturatef(float a)
{
    return a < 0.0f ? 0.0f : a > 1.0f ? 1.0f : a;
}
#define __expf expf
#define __logf logf
#define __sinf sinf
#define __cosf cosf
#define __powf powf

template <class To, class From> static inline To plain_bits(From from)
{
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float a)
{
    return plain_bits<unsigned>(a);
}
static inline int __float_as_int(float a)
{
    return plain_bits<int>(a);
}
static inline float __uint_as_float(unsigned a)
{
    return plain_bits<float>(a);
}
static inline float __int_as_float(int a)
{
    return plain_bits<float>(a);
}
static inline int __float2int_rn(float a)
{
    return static_cast<int>(nearbyintf(a));
}
static inline int __float2int_rz(float a)
{
    return static_cast<int>(a);
}
static inline float __int2float_rn(int a)
{
    return static_cast<float>(a);
}

static inline int __popc(unsigned a)
{
    return __builtin_popcount(a);
}
static inline int __popcll(unsigned long long a)
{
    return __builtin_popcountll(a);
}
static inline int __clz(int a)
{
    return a == 0 ? 32 : __builtin_clz(static_cast<unsigned>(a));
}
static inline int __ffs(int a)
{
    return __builtin_ffs(a);
}
static inline unsigned __brev(unsigned a)
{
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) {
        reversed |= (a >> bit & 1u) << (31 - bit);
    }
    return reversed;
}
static inline int __mul24(int a, int b)
{
    return a * b;
}
static inline unsigned __umul24(unsigned a, unsigned b)
{
    return a * b;
}
static inline int __mulhi(int a, int b)
{
    return static_cast<int>(static_cast<int64_t>(a) * b >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
static inline long long clock64()
{
    return 0;
}
static inline void __nanosleep(unsigned) {}

/* A pointer's address in shared memory is for PTX, which this device lacks. */
static inline size_t __cvta_generic_to_shared(const void *pointer)
{
    return reinterpret_cast<size_t>(pointer);
}

static inline void __threadfence_block() {}
static inline void __threadfence_system()
{
    __threadfence();
}

/* ------------------------------------------------------------------ plain_device.cpp */

#pragma GCC visibility push(hidden)
extern "C" {
/* Waits until the lanes in the mask have called it, and returns the values of all of them. Returns
 * the mask of the lanes that exist. */
unsigned plain_exchange(unsigned mask, uint64_t mine, uint64_t *all, int line);

/* Lets the lanes in the mask wait for each other, and see each other's writes. */
void plain_warp_barrier(unsigned mask, int line);

/* The lanes of the warp that exist. */
unsigned plain_lanes();

/* A barrier of the block. Returns for how many threads the predicate was true. */
int plain_barrier_count(bool predicate, int line);

/* Replaces the value by next(value, a, b), in one step, and returns the old value. */
uint32_t plain_atomic32(void *address, uint32_t (*next)(uint32_t, uint32_t, uint32_t), uint32_t a,
                        uint32_t b);
uint64_t plain_atomic64(void *address, uint64_t (*next)(uint64_t, uint64_t, uint64_t), uint64_t a,
                        uint64_t b);

[[noreturn]] void plain_fail(const char *what, int line);
}
#pragma GCC visibility pop

#undef assert
#define assert(...)                                                                                \
    ((__VA_ARGS__) ? static_cast<void>(0)                                                          \
                   : plain_fail("the assertion is false: " #__VA_ARGS__, __LINE__))
#define __trap() plain_fail("the kernel calls __trap()", __LINE__)

/* The block's dynamic shared memory. */
template <class T>
static inline T *plain_dynamic_shared(const char *name, int line = __builtin_LINE())
{
    if (plain_shared_bytes == 0) {
        plain_fail("the kernel has dynamic shared memory, and its size is 0: pass shared= (bytes)",
                   line);
    }
#ifdef SGEMM_TRACED
    name_dynamic_shared(name, dynamic_shared_bytes, plain_shared_bytes);
#else
    (void)name;
#endif
    return reinterpret_cast<T *>(dynamic_shared_bytes);
}

/* An array in dynamic shared memory: sgemm_kernels/custom/shared_members.py adds the calls. */
template <class T, size_t LENGTH>
static inline void plain_name_array(const char *name, const T (&array)[LENGTH])
{
#ifdef SGEMM_TRACED
    name_array(name, array, sizeof array);
#else
    (void)name, (void)array;
#endif
}

#undef __syncwarp
#undef __shfl_sync
#undef __shfl_xor_sync
#undef __shfl_up_sync
#undef __shfl_down_sync
#undef __ballot_sync
#undef __any_sync
#undef __all_sync

static inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
    plain_warp_barrier(mask, line);
}

/* The value of lane `from`, or the thread's own if its part of the warp has no such lane. */
template <class T>
static inline T plain_shuffle(unsigned mask, T value, int from, bool there, int line)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0, all[32] = {};
    memcpy(&bits, &value, sizeof value);
    const unsigned lanes = plain_exchange(mask, bits, all, line);
    if (there && (lanes >> from & 1u)) {
        memcpy(&value, &all[from], sizeof value);
    }
    return value;
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
                            int line = __builtin_LINE())
{
    const int first = grid_lane() / width * width;
    return plain_shuffle(mask, value, first + (lane & (width - 1)), true, line);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32,
                               int line = __builtin_LINE())
{
    const int own = grid_lane(), from = own - static_cast<int>(lanes);
    return plain_shuffle(mask, value, from & 31, from >= own / width * width, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32,
                                 int line = __builtin_LINE())
{
    const int own = grid_lane(), from = own + static_cast<int>(lanes);
    return plain_shuffle(mask, value, from & 31, from < own / width * width + width, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                                int line = __builtin_LINE())
{
    const int own = grid_lane(), from = own ^ bits;
    return plain_shuffle(mask, value, from & 31, from < own / width * width + width, line);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    uint64_t all[32] = {};
    const unsigned lanes = plain_exchange(mask, predicate != 0, all, line);
    unsigned votes = 0;
    for (int lane = 0; lane < 32; ++lane) {
        votes |= lanes >> lane & 1u && all[lane] ? 1u << lane : 0u;
    }
    return votes;
}
static inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return __ballot_sync(mask, predicate, line) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return __ballot_sync(mask, !predicate, line) == 0;
}
static inline unsigned __activemask()
{
    return plain_lanes();
}
template <class T>
static inline T __reduce_add_sync(unsigned mask, T value, int line = __builtin_LINE())
{
    uint64_t all[32] = {};
    const unsigned lanes = plain_exchange(mask, static_cast<uint64_t>(value), all, line);
    T sum = 0;
    for (int lane = 0; lane < 32; ++lane) {
        sum += lanes >> lane & 1u ? static_cast<T>(all[lane]) : T(0);
    }
    return sum;
}

#define __syncthreads_count(predicate) plain_barrier_count((predicate) != 0, __LINE__)
#define __syncthreads_or(predicate) (plain_barrier_count((predicate) != 0, __LINE__) > 0)
#define __syncthreads_and(predicate) (plain_barrier_count((predicate) == 0, __LINE__) == 0)

/* ------------------------------------------------------------------ atomic operations */

template <class T> struct PlainSame {
    typedef T Type;
};
/* next(old, a, b) on values of 4 or 8 bytes. */
template <class T, class Next> static inline T plain_atomic(T *address, T a, T b, const Next &)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "an atomic operation on 4 or 8 bytes");
    if constexpr (sizeof(T) == 4) {
        return plain_bits<T>(plain_atomic32(
            address,
            [](uint32_t old, uint32_t x, uint32_t y) {
                return plain_bits<uint32_t>(
                    T(Next()(plain_bits<T>(old), plain_bits<T>(x), plain_bits<T>(y))));
            },
            plain_bits<uint32_t>(a), plain_bits<uint32_t>(b)));
    } else {
        return plain_bits<T>(plain_atomic64(
            address,
            [](uint64_t old, uint64_t x, uint64_t y) {
                return plain_bits<uint64_t>(
                    T(Next()(plain_bits<T>(old), plain_bits<T>(x), plain_bits<T>(y))));
            },
            plain_bits<uint64_t>(a), plain_bits<uint64_t>(b)));
    }
}
#define PLAIN_ATOMIC(name, expression)                                                             \
    template <class T> static inline T name(T *address, typename PlainSame<T>::Type value)         \
    {                                                                                              \
        return plain_atomic(address, value, T(0), [](T old, T a, T) -> T { return expression; });  \
    }
PLAIN_ATOMIC(atomicSub, old - a)
PLAIN_ATOMIC(atomicExch, ((void)old, a))
PLAIN_ATOMIC(atomicMax, old < a ? a : old)
PLAIN_ATOMIC(atomicMin, a < old ? a : old)
PLAIN_ATOMIC(atomicAnd, old &a)
PLAIN_ATOMIC(atomicOr, old | a)
PLAIN_ATOMIC(atomicXor, old ^ a)
PLAIN_ATOMIC(atomicAdd_block, old + a)
PLAIN_ATOMIC(atomicAdd_system, old + a)
PLAIN_ATOMIC(atomicDec, old == 0 || old > a ? a : old - 1)
template <class T>
static inline T atomicCAS(T *address, typename PlainSame<T>::Type compared,
                          typename PlainSame<T>::Type value)
{
    return plain_atomic(address, compared, value,
                        [](T old, T a, T b) -> T { return old == a ? b : old; });
}
static inline double atomicAdd(double *address, double value)
{
    return plain_atomic(address, value, 0.0, [](double old, double a, double) { return old + a; });
}

#endif
