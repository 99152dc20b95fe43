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

/* Each loop below does one simple operation on consecutive elements, so that the compiler
 * vectorizes it. All steps are exact except the conversions to integers, which truncate. */

/* Adds the products from `first` to `end` along K, and keeps `bits` below the largest exponent. */
void add_products(const FactorA &a, const FactorB &b, float *d, int first, int end, int bits)
{
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

    float unit[rows * cols], per_unit[rows * cols];
    for (int i = 0; i < rows * cols; ++i) {
        const int field = static_cast<int>(bits_of<uint32_t>(d[i]) >> 23 & 255);
        const int of_d =
            (field > 1 ? field : 1) - 127; /* also below the exponent of any product if d is zero */
        const int top = of_d > largest[i] ? of_d : largest[i];
        const int clamped = top > -100 ? top : -100; /* if all products are zero */
        unit[i] = power_of_two(clamped - bits);
        per_unit[i] = power_of_two(bits - clamped);
    }

    /* At most 16 products of at most (2 - 2^-10)^2 2^25 units: less than 2^31. */
    int32_t sum[rows * cols];
    for (int m = 0; m < rows; ++m) {
        int32_t of_row[cols] = {};
        for (int k = first; k < end; ++k) {
            const float of_a = a.value[m * depth + k];
            for (int n = 0; n < cols; ++n) {
                const float product = of_a * b.value[k * cols + n]; /* 22 bits: exact */
                of_row[n] += static_cast<int32_t>(product * per_unit[m * cols + n]);
            }
        }
        memcpy(sum + m * cols, of_row, sizeof of_row);
    }

    for (int i = 0; i < rows * cols; ++i) {
        const double total = static_cast<double>(sum[i]) +
                             static_cast<double>(static_cast<int32_t>(d[i] * per_unit[i]));
        /* A float keeps 24 of a double's 53 bits. With a product that is not zero it is normal. */
        const double exact = total * static_cast<double>(unit[i]);
        const uint64_t cut = bits_of<uint64_t>(exact) & ~((uint64_t{1} << 29) - 1);
        const float rounded = static_cast<float>(bits_of<double>(cut));
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
        add_products(a, b, d, k, k + model.products, model.bits);
    }
}

/* The bits of a sum with infinite or NaN terms: NaN, or the only infinity. 0 if all terms are
 * finite. */
uint32_t not_finite(const Half *a, const Half *b, uint32_t d)
{
    constexpr uint32_t infinity = 0x7f800000, nan = 0x7fffffff, sign = 0x80000000;
    bool seen[2] = {}; /* infinities, by sign */
    if ((d & ~sign) > infinity) {
        return nan;
    }
    seen[d >> 31] |= (d & ~sign) == infinity;
    for (int k = 0; k < depth; ++k) {
        const unsigned x = a[k] & 0x7fff, y = b[k * cols] & 0x7fff;
        if (x < 0x7c00 && y < 0x7c00) {
            continue;
        }
        if (x > 0x7c00 || y > 0x7c00 || x == 0 || y == 0) {
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

/* Infinities and NaN are treated as finite here. */
template <int COUNT> void Factors<COUNT>::prepare()
{
    constexpr uint32_t one = 1 << 23, bias = 112; /* from a half's exponent field to a float's */
    const uint32_t least_normal = bits_of<uint32_t>(0x1p-14f);
    for (int i = 0; i < COUNT; ++i) {
        /* The significand of a subnormal has no leading 1: one is added and subtracted again. */
        const uint32_t magnitude = half[i] & 0x7fff;
        const uint32_t subnormal = magnitude < 1024 ? UINT32_MAX : 0;
        const float more = bits_of<float>((magnitude << 13) + bias * one + (subnormal & one));
        const float less = bits_of<float>(subnormal & least_normal);
        const uint32_t sign = static_cast<uint32_t>(half[i] & 0x8000) << 16;
        value[i] = bits_of<float>(bits_of<uint32_t>(more - less) | sign);
    }
    int16_t largest = 0;
    for (int i = 0; i < COUNT; ++i) {
        const int16_t magnitude = half[i] & 0x7fff;
        const int16_t field = magnitude >> 10 > 1 ? magnitude >> 10 : 1;
        exponent[i] = magnitude ? field - 15 : exponent_of_zero;
        largest = magnitude > largest ? magnitude : largest;
    }
    finite = largest < 0x7c00;
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
        special[i] =
            not_finite(a.half + i / cols * depth, b.half + i % cols, bits_of<uint32_t>(d[i]));
        d[i] = special[i] ? 0.0f : d[i];
    }
    add_all_products(a, b, d);
    for (int i = 0; i < rows * cols; ++i) {
        d[i] = special[i] ? bits_of<float>(special[i]) : d[i];
    }
}
