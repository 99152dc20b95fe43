/* The arithmetic of a tensor core. */
#ifndef SGEMM_CPU_MULTIPLY_HALVES_H
#define SGEMM_CPU_MULTIPLY_HALVES_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

typedef uint16_t Half;

/* Halves, and what of them is the same for each product that they are a factor of. */
template <int COUNT> struct Factors {
    alignas(16) Half half[COUNT];
    alignas(16) float value[COUNT];
    alignas(16) int16_t exponent[COUNT];
    bool finite;

    /* Once `half` is filled. */
    void prepare();
};

constexpr int product_rows = 16, product_cols = 8, product_depth = 16;
typedef Factors<product_rows * product_depth> FactorA; /* by rows */
typedef Factors<product_depth * product_cols> FactorB; /* by rows */

/* d (16, 8) += A (16, 16) @ B (16, 8), each result one sum. */
void multiply_halves(const FactorA &a, const FactorB &b, float *d);

#pragma GCC visibility pop

#endif
