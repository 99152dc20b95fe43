/* The arithmetic of a tensor core. */
#ifndef SGEMM_EMULATOR_MULTIPLY_FP16_H
#define SGEMM_EMULATOR_MULTIPLY_FP16_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

typedef uint16_t Half;

enum class HalfFormat { fp16, bf16 };

/* 16-bit factors, and what can be computed from them once for all products. */
template <int COUNT> struct Factors {
    HalfFormat format = HalfFormat::fp16;
    alignas(16) Half half[COUNT];
    alignas(16) float value[COUNT];
    alignas(16) int16_t exponent[COUNT];
    bool finite, zero; /* all elements are */

    /* To be called once `half` is filled. */
    void prepare();
};

constexpr int product_rows = 16, product_cols = 8, product_depth = 16;
typedef Factors<product_rows * product_depth> FactorA; /* row-major */
typedef Factors<product_depth * product_cols> FactorB; /* row-major */

/* d (16, 8) += A (16, 16) @ B (16, 8). A and B have the same format. */
void multiply_fp16(const FactorA &a, const FactorB &b, float *d);

#pragma GCC visibility pop

#endif
