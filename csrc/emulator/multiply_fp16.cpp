/* The arithmetic of a tensor core. It adds G products and the old value at once, G = 16 on compute
 * capability 9.0. If e is the largest exponent of these G + 1 terms, each is truncated towards zero
 * to a multiple of 2^(e - F), F = 25 on 9.0. They are added exactly, and the sum is truncated to a
 * float. The exponent of a product is the sum of its factors' exponents, without normalization. */
#include "multiply_fp16.h"

#include <string.h>

#include "float_bits.h"
#include "tensor_core_model.h"

namespace {

constexpr int rows = product_rows, cols = product_cols, depth = product_depth;
constexpr int16_t exponent_of_zero = -10000; /* plus any other exponent: less than any float has */

/* The products of fp16 factors, and the units of their sums, are floats. Those of bf16 factors need
 * the exponents of a double: `Number` is one of the two. */

/* 2^exponent, for exponents of normal numbers. */
template <class Number> Number power(int exponent);
template <> float power<float>(int exponent)
{
    return power_of_two(exponent);
}
template <> double power<double>(int exponent)
{
    return bits_of<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

/* The float next to x, towards zero. x has at most 53 bits, all at or above 2^-1022. */
float truncated(double x)
{
    /* A float keeps 24 of a double's 53 bits. */
    return static_cast<float>(bits_of<double>(bits_of<uint64_t>(x) & ~((uint64_t{1} << 29) - 1)));
}

/* The same for a sum of any magnitude: subnormal floats have fewer bits, and a magnitude of 2^128
 * or more becomes infinite. */
float truncated_in_range(double x)
{
    const double magnitude = x < 0 ? -x : x;
    if (magnitude < 0x1p-126) { /* int64_t truncates */
        return static_cast<float>(static_cast<double>(static_cast<int64_t>(x * 0x1p149)) *
                                  0x1p-149);
    }
    return truncated(x);
}

/* Each loop below does one simple operation on consecutive elements, so that the compiler
 * vectorizes it. All steps are exact except the conversions to integers, which truncate. */

/* Adds the products from `first` to `end` along K, and keeps `bits` below the largest exponent. */
template <class Number>
void add_products(const FactorA &a, const FactorB &b, float *d, int first, int end, int bits)
{
    constexpr bool is_fp16 = sizeof(Number) == sizeof(float);
    int16_t largest[rows * cols];
    for (int m = 0; m < rows; ++m) {
        int16_t of_row[cols];
        for (int n = 0; n < cols; ++n) {
            of_row[n] = 2 * exponent_of_zero;
        }
        for (int k = first; k < end; ++k) {
            const int16_t of_a = a.exponent[m * depth + k];
            for (int n = 0; n < cols; ++n) {
                const int16_t exponent = of_a + b.exponent[k * cols + n];
                of_row[n] = exponent > of_row[n] ? exponent : of_row[n];
            }
        }
        memcpy(largest + m * cols, of_row, sizeof of_row);
    }

    Number unit[rows * cols], per_unit[rows * cols];
    for (int i = 0; i < rows * cols; ++i) {
        const int field = static_cast<int>(bits_of<uint32_t>(d[i]) >> 23 & 255);
        /* Of a sum of 0: found by comparing bf16 products with an H200. */
        const int of_d = d[i] == 0.0f ? -133 : (field > 1 ? field : 1) - 127;
        const int top = of_d > largest[i] ? of_d : largest[i];
        /* No fp16 product has an exponent below -28, and units must be normal floats. */
        const int clamped = !is_fp16 || top > -100 ? top : -100;
        unit[i] = power<Number>(clamped - bits);
        per_unit[i] = power<Number>(bits - clamped);
    }

    /* At most 16 products of at most (2 - 2^-10)^2 2^25 units: less than 2^31. */
    int32_t sum[rows * cols];
    for (int m = 0; m < rows; ++m) {
        int32_t of_row[cols] = {};
        for (int k = first; k < end; ++k) {
            const Number of_a = a.value[m * depth + k];
            for (int n = 0; n < cols; ++n) {
                const Number product = of_a * b.value[k * cols + n]; /* 22 or 16 bits: exact */
                of_row[n] += static_cast<int32_t>(product * per_unit[m * cols + n]);
            }
        }
        memcpy(sum + m * cols, of_row, sizeof of_row);
    }

    for (int i = 0; i < rows * cols; ++i) {
        const double total = static_cast<double>(sum[i]) +
                             static_cast<double>(static_cast<int32_t>(d[i] * per_unit[i]));
        /* With an fp16 product that is not zero, the sum is a normal float or 0. */
        const double exact = total * static_cast<double>(unit[i]);
        const float rounded = is_fp16 ? truncated(exact) : truncated_in_range(exact);
        /* A sum of zeros is +0, since integers have no -0. */
        d[i] = largest[i] < exponent_of_zero / 2 ? d[i] + 0.0f : rounded;
    }
}

/* The same for products that are all zero. */
void add_zeros(float *d)
{
    for (int i = 0; i < rows * cols; ++i) {
        d[i] += 0.0f;
    }
}

void add_all_products(const FactorA &a, const FactorB &b, float *d)
{
    const TensorCoreModel model = cpu_tensor_cores();
    for (int k = 0; k < depth; k += model.products) {
        (a.format == HalfFormat::fp16
             ? add_products<float>
             : add_products<double>)(a, b, d, k, k + model.products, model.bits);
    }
}

/* The bits of a sum with infinite or NaN terms: NaN, or the only infinity. 0 if all terms are
 * finite. */
uint32_t not_finite(const Half *a, const Half *b, Half infinite, uint32_t d)
{
    constexpr uint32_t infinity = 0x7f800000, nan = 0x7fffffff, sign = 0x80000000;
    bool seen[2] = {}; /* infinities, by sign */
    if ((d & ~sign) > infinity) {
        return nan;
    }
    seen[d >> 31] |= (d & ~sign) == infinity;
    for (int k = 0; k < depth; ++k) {
        const unsigned x = a[k] & 0x7fff, y = b[k * cols] & 0x7fff;
        if (x < infinite && y < infinite) {
            continue;
        }
        if (x > infinite || y > infinite || x == 0 || y == 0) {
            return nan;
        }
        seen[(a[k] ^ b[k * cols]) >> 15] = true;
    }
    return seen[0] && seen[1] ? nan : seen[0] ? infinity : seen[1] ? infinity | sign : 0;
}

bool all_finite(const float *d)
{
    int32_t largest = 0;
    for (int i = 0; i < rows * cols; ++i) {
        const int32_t magnitude = bits_of<int32_t>(d[i]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < 0x7f800000;
}

} /* namespace */

namespace {

/* The bits of infinity. */
Half infinity_of(HalfFormat format)
{
    return format == HalfFormat::fp16 ? 0x7c00 : 0x7f80;
}

/* The value of an fp16 number. */
float value_of_fp16(Half half)
{
    constexpr uint32_t one = 1 << 23, bias = 112; /* from a half's exponent field to a float's */
    const uint32_t least_normal = bits_of<uint32_t>(0x1p-14f);
    /* The significand of a subnormal has no leading 1: one is added and subtracted again. */
    const uint32_t magnitude = half & 0x7fff;
    const uint32_t subnormal = magnitude < 1024 ? UINT32_MAX : 0;
    const float more = bits_of<float>((magnitude << 13) + bias * one + (subnormal & one));
    const float less = bits_of<float>(subnormal & least_normal);
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    return bits_of<float>(bits_of<uint32_t>(more - less) | sign);
}

} /* namespace */

/* Infinities and NaN are treated as finite here. */
template <int COUNT> void Factors<COUNT>::prepare()
{
    const bool is_fp16 = format == HalfFormat::fp16;
    if (is_fp16) {
        for (int i = 0; i < COUNT; ++i) {
            value[i] = value_of_fp16(half[i]);
        }
    } else {
        for (int i = 0; i < COUNT; ++i) {
            value[i] = bits_of<float>(static_cast<uint32_t>(half[i]) << 16);
        }
    }
    const int16_t fraction_bits = is_fp16 ? 10 : 7, bias = is_fp16 ? 15 : 127;
    int16_t largest = 0;
    for (int i = 0; i < COUNT; ++i) {
        const int16_t magnitude = half[i] & 0x7fff;
        const auto shifted = static_cast<int16_t>(magnitude >> fraction_bits);
        const int16_t field = shifted > 1 ? shifted : 1;
        exponent[i] = magnitude ? field - bias : exponent_of_zero;
        largest = magnitude > largest ? magnitude : largest;
    }
    finite = largest < infinity_of(format);
    zero = largest == 0;
}

template struct Factors<rows * depth>;
template struct Factors<depth * cols>;

void multiply_fp16(const FactorA &a, const FactorB &b, float *d)
{
    if (a.finite && b.finite && all_finite(d)) {
        if (a.zero || b.zero) { /* most are in the tile of a small product */
            add_zeros(d);
        } else {
            add_all_products(a, b, d);
        }
        return;
    }
    uint32_t special[rows * cols];
    for (int i = 0; i < rows * cols; ++i) {
        special[i] = not_finite(a.half + i / cols * depth, b.half + i % cols, infinity_of(a.format),
                                bits_of<uint32_t>(d[i]));
        d[i] = special[i] ? 0.0f : d[i];
    }
    add_all_products(a, b, d);
    for (int i = 0; i < rows * cols; ++i) {
        d[i] = special[i] ? bits_of<float>(special[i]) : d[i];
    }
}
