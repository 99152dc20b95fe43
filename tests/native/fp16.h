/* Shared by the tensor-core checks: memory, launches, operands, and the arithmetic of compute
 * capability 9.0 in integers, described in csrc/emulator/multiply_fp16.cpp. */
#ifndef TESTS_NATIVE_FP16_H
#define TESTS_NATIVE_FP16_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <random>
#include <vector>

#include "../../csrc/gemm/kernel/kernel.h"

[[noreturn]] inline void give_up(const char *why)
{
    printf("%s\n", why);
    exit(2);
}

/* Memory that both the host and the device can access. */
template <class T> class Shared {
  public:
    explicit Shared(size_t count)
    {
#ifdef __CUDACC__
        cudaMallocManaged(&memory_, count * sizeof(T));
#else
        memory_ = static_cast<T *>(malloc(count * sizeof(T)));
#endif
        if (!memory_) {
            give_up("no memory");
        }
    }
    ~Shared()
    {
#ifdef __CUDACC__
        cudaFree(memory_);
#else
        free(memory_);
#endif
    }
    Shared(const Shared &) = delete;
    operator T *() const
    {
        return memory_;
    }

  private:
    T *memory_ = nullptr;
};

/* Launches `blocks` blocks of `threads` threads, in clusters of `cluster` blocks. */
template <class Problem>
Status launch(void (*kernel)(Problem), int threads, int shared_bytes, int64_t blocks, int cluster,
              const Problem &problem)
{
    const Launch where = {};
    const KernelSpec spec = {
        .symbol = "", .threads = {threads, 1}, .dynamic_bytes = shared_bytes, .cluster = cluster};
    return launch_blocks(kernel, spec, blocks, problem, &where);
}

/* Launches the kernel and waits for it. */
template <class Problem>
void run(void (*kernel)(Problem), int threads, int shared_bytes, int64_t blocks,
         const Problem &problem, int cluster = 1)
{
    const Status status = launch(kernel, threads, shared_bytes, blocks, cluster, problem);
    if (status.code != STATUS_OK) {
        give_up(status.message);
    }
#ifdef __CUDACC__
    if (cudaDeviceSynchronize() != cudaSuccess) {
        give_up(cudaGetErrorString(cudaGetLastError()));
    }
#endif
}

/* ------------------------------------------------------------------ the arithmetic, in integers */

inline uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A finite number: significand * 2^(exponent - point). The significand is below 2^(point + 1),
 * or below 2^(point + 2) for a product. */
struct Term {
    bool negative;
    int exponent, point;
    int64_t significand;
};

inline Term term_of_half(uint16_t h)
{
    const int field = h >> 10 & 31;
    const int64_t fraction = h & 1023;
    return {h >> 15 != 0, field ? field - 15 : -14, 10, field ? fraction + 1024 : fraction};
}

inline Term term_of_float(float x)
{
    const int field = static_cast<int>(bits_of_float(x) >> 23 & 255);
    const int64_t fraction = bits_of_float(x) & 0x7fffff;
    return {signbit(x) != 0, field ? field - 127 : -126, 23,
            field ? fraction + 0x800000 : fraction};
}

inline Term term_of_bf16(uint16_t h)
{
    const int field = h >> 7 & 255;
    const int64_t fraction = h & 127;
    return {h >> 15 != 0, field ? field - 127 : -126, 7, field ? fraction + 128 : fraction};
}

inline double value_of_half(uint16_t h)
{
    const Term term = term_of_half(h);
    const double magnitude = (h & 0x7fff) > 0x7c00    ? static_cast<double>(NAN)
                             : (h & 0x7fff) == 0x7c00 ? static_cast<double>(INFINITY)
                                                      : ldexp(static_cast<double>(term.significand),
                                                              term.exponent - term.point);
    return term.negative ? -magnitude : magnitude;
}

inline double value_of_bf16(uint16_t h)
{
    return static_cast<double>(float_of(static_cast<uint32_t>(h) << 16));
}

/* before + the dot product of a row of A and a column of B, of fp16 or of bf16. */
inline float sum_of(const uint16_t (&a_row)[16], const uint16_t (&b_col)[16], float before,
                    bool is_bf16 = false)
{
    const auto term_of = is_bf16 ? term_of_bf16 : term_of_half;
    const auto value_of = is_bf16 ? value_of_bf16 : value_of_half;
    double plain = before; // only used to decide whether the sum is finite
    std::vector<Term> terms;
    for (int k = 0; k < 16; ++k) {
        const uint16_t a = a_row[k], b = b_col[k];
        plain += value_of(a) * value_of(b);
        const Term x = term_of(a), y = term_of(b);
        terms.push_back({x.negative != y.negative, x.exponent + y.exponent, x.point + y.point,
                         x.significand * y.significand});
    }
    terms.push_back(term_of_float(before));
    if (isnan(plain)) {
        return float_of(0x7fffffff);
    }
    if (isinf(plain)) {
        return plain < 0 ? -INFINITY : INFINITY;
    }
    int largest = INT32_MIN;
    for (const Term &term : terms) {
        largest = term.significand && term.exponent > largest ? term.exponent : largest;
    }
    if (largest == INT32_MIN) {
        return 0.0f;
    }
    largest = std::max(largest, -133); // the exponent of a `before` of zero
    const int unit = largest - 25;     // smaller bits are cut off
    __int128 sum = 0;
    for (const Term &term : terms) {
        const int up = term.significand ? term.exponent - term.point - unit : 0; // at most 25
        const __int128 cut = up >= 0     ? static_cast<__int128>(term.significand) << up
                             : up > -100 ? static_cast<__int128>(term.significand) >> -up
                                         : 0;
        sum += term.negative ? -cut : cut;
    }
    const bool negative = sum < 0;
    __int128 magnitude = negative ? -sum : sum;
    int exponent = unit;
    for (; magnitude >= 1 << 24 || (exponent < -149 && magnitude); magnitude >>= 1) {
        ++exponent;
    }
    const float result = ldexpf(static_cast<float>(static_cast<int>(magnitude)), exponent);
    return negative ? -result : result;
}

/* The fp16 value nearest to a float, ties to even, by binary search. */
inline uint16_t nearest_half(float x)
{
    if (isnan(x)) {
        return 0x7fff;
    }
    const double magnitude = fabs(static_cast<double>(x));
    int low = 0, high = 0x7c00; // low: the greatest fp16 value not above it
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (value_of_half(static_cast<uint16_t>(middle)) <= magnitude ? low : high) = middle;
    }
    const double below = value_of_half(static_cast<uint16_t>(low));
    const double above = low == 0x7bff ? 65536.0 : value_of_half(static_cast<uint16_t>(low + 1));
    const double rest = magnitude - below, missing = above - magnitude;
    low += rest > missing || (rest == missing && low % 2);
    return static_cast<uint16_t>(low | (signbit(x) ? 0x8000 : 0));
}

/* ------------------------------------------------------------------ checks */

inline int failures;

inline void check(bool right, const char *what, uint32_t found, uint32_t wanted)
{
    if (!right && ++failures <= 10) {
        printf("%s: %08x, not %08x\n", what, found, wanted);
    }
}

typedef std::mt19937_64 Random;

/* Kinds of operands. */
struct Kind {
    const char *name;
    int least, spread;      /* exponents of fp16 values */
    double zeros, specials; /* probability of zero; of infinity or NaN */
    int least_d, spread_d;  /* exponents of d */
    double zero_d, cancelling, positive;
};

const Kind kinds[] = {
    {"ordinary", -3, 4, 0, 0, -3, 6, 0.02, 0, 0},
    {"positive", -3, 4, 0, 0, -3, 6, 0.02, 0, 1},
    {"wide", -24, 40, 0, 0, -40, 80, 0.1, 0, 0},
    {"subnormal", -24, 11, 0.1, 0, -60, 40, 0.1, 0, 0},
    {"largest", 12, 4, 0, 0, 20, 16, 0.1, 0, 1},
    {"zeros beside large factors", -24, 40, 0.6, 0, -60, 60, 0.3, 0, 0},
    {"zeros alone", 0, 1, 1, 0, -149, 277, 0.5, 0, 0},
    {"few terms", -24, 40, 0.95, 0, -149, 277, 0.2, 0, 0},
    {"cancelling", -4, 8, 0.2, 0, -8, 16, 0.2, 0.5, 0},
    {"d of any size", -24, 40, 0.1, 0, -149, 277, 0.1, 0, 0},
    {"not finite", -24, 40, 0.1, 0.01, -149, 277, 0.1, 0, 0},
    {"mostly not finite", -24, 40, 0.3, 0.3, -149, 277, 0.3, 0, 0},
};

inline bool with_odds(Random &random, double odds)
{
    return std::uniform_real_distribution<double>()(random) < odds;
}

inline uint16_t draw_half(Random &random, const Kind &kind)
{
    const uint16_t sign = with_odds(random, kind.positive) ? 0 : random() & 0x8000;
    if (with_odds(random, kind.specials)) {
        return static_cast<uint16_t>(sign | 0x7c00 | (random() % 3 ? 0 : random() & 1023));
    }
    if (with_odds(random, kind.zeros)) {
        return sign;
    }
    const int exponent = kind.least + static_cast<int>(random() % kind.spread);
    const double magnitude = ldexp(1.0 + static_cast<double>(random() & 1023) / 1024.0, exponent);
    return sign | nearest_half(static_cast<float>(magnitude > 65504.0 ? 65504.0 : magnitude));
}

inline float draw_float(Random &random, const Kind &kind)
{
    const uint32_t sign = with_odds(random, kind.positive) ? 0 : (random() & 1) << 31;
    if (with_odds(random, kind.specials)) {
        return float_of(sign | 0x7f800000 | (random() % 3 ? 0 : random() & 0x7fffff));
    }
    if (with_odds(random, kind.zero_d)) {
        return float_of(sign);
    }
    const int exponent = kind.least_d + static_cast<int>(random() % kind.spread_d);
    const float magnitude =
        ldexpf(1.0f + static_cast<float>(random() & 0x7fffff) * 0x1p-23f, exponent);
    return sign ? -magnitude : magnitude;
}

#endif
