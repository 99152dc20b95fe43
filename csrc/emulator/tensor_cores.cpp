#include "tensor_cores.h"

#include <string.h>

#include "block.h"
#include "float_bits.h"
#include "multiply_fp16.h"

namespace {

struct Registers {
    float *d;
    const unsigned *a, *b;
};

/* Two consecutive elements along K in one register, the first in the lower half. */
void unpack(unsigned pair, Half *first, int step)
{
    first[0] = static_cast<Half>(pair);
    first[step] = static_cast<Half>(pair >> 16);
}

void multiply(void *const *lanes)
{
    FactorA a;
    FactorB b;
    float d[product_rows * product_cols];
    for (int lane = 0; lane < warp_size; ++lane) {
        const auto own = static_cast<const Registers *>(lanes[lane]);
        const int line = lane / 4, pair = lane % 4 * 2;
        for (int i = 0; i < 4; ++i) {
            const int row = line + i % 2 * 8, k = pair + i / 2 * 8;
            unpack(own->a[i], a.half + row * product_depth + k, 1);
            d[(line + i / 2 * 8) * product_cols + pair + i % 2] = own->d[i];
        }
        for (int i = 0; i < 2; ++i) {
            unpack(own->b[i], b.half + (pair + i * 8) * product_cols + line, product_cols);
        }
    }
    a.prepare();
    b.prepare();
    multiply_fp16(a, b, d);
    for (int lane = 0; lane < warp_size; ++lane) {
        const auto own = static_cast<const Registers *>(lanes[lane]);
        for (int i = 0; i < 4; ++i) {
            own->d[i] = d[(lane / 4 + i / 2 * 8) * product_cols + lane % 4 * 2 + i % 2];
        }
    }
}

struct Row {
    const float4 *mine;
    unsigned *r;
};

void exchange_rows(void *const *lanes)
{
    for (int lane = 0; lane < warp_size; ++lane) {
        for (int matrix = 0; matrix < 4; ++matrix) {
            const auto from = static_cast<const Row *>(lanes[8 * matrix + lane / 4]);
            unsigned row[4];
            memcpy(row, from->mine, sizeof row);
            static_cast<const Row *>(lanes[lane])->r[matrix] = row[lane % 4];
        }
    }
}

} /* namespace */

void grid_exchange_rows(unsigned (&r)[4], const float4 &row, int line)
{
    Row mine = {&row, r};
    grid_synchronize_warp(line, exchange_rows, &mine);
}

void grid_multiply_fp16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line)
{
    Registers mine = {d, a, b};
    grid_synchronize_warp(line, multiply, &mine);
}

uint16_t grid_half(float x)
{
    const uint32_t bits = bits_of<uint32_t>(x), magnitude = bits & 0x7fffffff;
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000) {
        return 0x7fff;
    }
    if (magnitude >=
        0x477ff000) { /* 65520 and above round to 2^16, which exceeds the largest fp16 number */
        return sign | 0x7c00;
    }
    const int field = static_cast<int>(magnitude >> 23);
    /* `from` has `too_many` more low bits than the fp16 result. For a normal result, it is the
     * float's bits minus the difference of the exponent biases. For a subnormal result, it is the
     * float's significand. */
    const bool normal = field > 112;
    const int too_many = normal ? 13 : 126 - field;
    const uint32_t from = normal ? magnitude - (112u << 23) : (magnitude & 0x7fffff) | 0x800000;
    if (too_many > 24) {
        return sign; /* less than 1/2 of the smallest fp16 subnormal */
    }
    const uint32_t odd = from >> too_many & 1;
    return static_cast<uint16_t>(sign | (from + (1u << (too_many - 1)) - 1 + odd) >> too_many);
}

float grid_float_of_half(uint16_t h)
{
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
    const unsigned field = h >> 10 & 31, fraction = h & 1023;
    if (field == 31) {
        return bits_of<float>(sign | (fraction ? 0x7fffffff : 0x7f800000));
    }
    const float magnitude = field ? bits_of<float>((field + 112) << 23 | fraction << 13)
                                  : static_cast<float>(fraction) * power_of_two(-24);
    return bits_of<float>(bits_of<uint32_t>(magnitude) | sign);
}
