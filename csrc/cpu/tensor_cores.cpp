/* The arithmetic of a tensor core of compute capability 9.0. A result is one sum, of 16 products and
 * what it was before. Where the largest of these has the exponent e, each is cut off, towards zero, to
 * a multiple of 2^(e - 25), these are added exactly, and the sum is cut off to a float. The exponent of
 * a product is the sum of its factors': it is not normalised. */
#include "tensor_cores.h"

#include <string.h>

namespace {

constexpr int rows = 16, cols = 8, depth = 16; /* d is (rows, cols), a (rows, depth) */
constexpr int kept_bits = 25;                  /* below the largest exponent */
constexpr int16_t exponent_of_zero = -10000;   /* in a sum with any other: less than any float's */

typedef uint16_t Half;

template <class To, class From> To bits_of(From from)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* 2^exponent, for exponents of normal floats. */
float power_of_two(int exponent)
{
    return bits_of<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

struct Tile {
    Half a[rows * depth], b[depth * cols];
    float d[rows * cols];
};

/* From here on each loop does one simple thing to neighbours, so that the compiler takes several at
 * once. Every step is exact but for the conversions to integers, which cut off. */

/* Halves as floats, and their exponents; what is not finite is taken for more of the finite. */
template <int COUNT> struct Factors {
    float value[COUNT];
    int16_t exponent[COUNT];

    explicit Factors(const Half *halves)
    {
        constexpr uint32_t one = 1 << 23, bias = 112; /* between the exponents' fields */
        const uint32_t least_normal = bits_of<uint32_t>(0x1p-14f);
        for (int i = 0; i < COUNT; ++i) {
            /* A subnormal's significand begins with no 1: it is given one, which is taken away. */
            const uint32_t magnitude = halves[i] & 0x7fff;
            const uint32_t subnormal = magnitude < 1024 ? UINT32_MAX : 0;
            const float more = bits_of<float>((magnitude << 13) + bias * one + (subnormal & one));
            const float less = bits_of<float>(subnormal & least_normal);
            const uint32_t sign = static_cast<uint32_t>(halves[i] & 0x8000) << 16;
            value[i] = bits_of<float>(bits_of<uint32_t>(more - less) | sign);
        }
        for (int i = 0; i < COUNT; ++i) {
            const int16_t magnitude = halves[i] & 0x7fff;
            const int16_t field = magnitude >> 10 > 1 ? magnitude >> 10 : 1;
            exponent[i] = magnitude ? field - 15 : exponent_of_zero;
        }
    }
};

void add_products(Tile *tile)
{
    const Factors<rows * depth> a(tile->a);
    const Factors<depth * cols> b(tile->b);
    float *const d = tile->d;

    int16_t largest[rows * cols];
    for (int m = 0; m < rows; ++m) {
        int16_t of_row[cols];
        for (int n = 0; n < cols; ++n) {
            of_row[n] = 2 * exponent_of_zero;
        }
        for (int k = 0; k < depth; ++k) {
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
            (field > 1 ? field : 1) - 127; /* a zero's is less than any product's, too */
        const int top = of_d > largest[i] ? of_d : largest[i];
        const int clamped = top > -100 ? top : -100; /* where all products are zero */
        unit[i] = power_of_two(clamped - kept_bits);
        per_unit[i] = power_of_two(kept_bits - clamped);
    }

    /* 16 products of at most (2 - 2^-10)^2 2^25 units: less than 2^31. */
    int32_t sum[rows * cols];
    for (int m = 0; m < rows; ++m) {
        int32_t of_row[cols] = {};
        for (int k = 0; k < depth; ++k) {
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
        /* A sum of zeros alone is +0: integers, which are what is added, know no other. */
        d[i] = largest[i] < exponent_of_zero / 2 ? d[i] + 0.0f : rounded;
    }
}

/* The bits of a sum some of whose terms are not finite: NaN, or the one infinity among them. 0 if all
 * are finite. */
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

int16_t largest_magnitude(const Half *halves, int count)
{
    int16_t largest = 0;
    for (int i = 0; i < count; ++i) {
        const int16_t magnitude = halves[i] & 0x7fff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

bool all_finite(const Tile &tile)
{
    int32_t largest = 0;
    for (const float d : tile.d) {
        const int32_t magnitude = bits_of<int32_t>(d) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < 0x7f800000 && largest_magnitude(tile.a, rows * depth) < 0x7c00 &&
           largest_magnitude(tile.b, depth * cols) < 0x7c00;
}

void multiply(Tile *tile)
{
    if (all_finite(*tile)) {
        add_products(tile);
        return;
    }
    uint32_t special[rows * cols];
    for (int i = 0; i < rows * cols; ++i) {
        special[i] = not_finite(tile->a + i / cols * depth, tile->b + i % cols,
                                bits_of<uint32_t>(tile->d[i]));
        tile->d[i] = special[i] ? 0.0f : tile->d[i];
    }
    add_products(tile);
    for (int i = 0; i < rows * cols; ++i) {
        tile->d[i] = special[i] ? bits_of<float>(special[i]) : tile->d[i];
    }
}

/* ------------------------------------------------------------------ what each thread holds */

constexpr int warp_size = 32;

struct Registers {
    float *d;
    const unsigned *a, *b;
};

/* Two neighbours along the depth in one register, the first in its lower half. */
void unpack(unsigned pair, Half *first, int step)
{
    first[0] = static_cast<Half>(pair);
    first[step] = static_cast<Half>(pair >> 16);
}

void multiply_halves(void *const *lanes)
{
    Tile tile;
    for (int lane = 0; lane < warp_size; ++lane) {
        const auto own = static_cast<const Registers *>(lanes[lane]);
        const int line = lane / 4, pair = lane % 4 * 2;
        for (int i = 0; i < 4; ++i) {
            const int row = line + i % 2 * 8, k = pair + i / 2 * 8;
            unpack(own->a[i], tile.a + row * depth + k, 1);
            tile.d[(line + i / 2 * 8) * cols + pair + i % 2] = own->d[i];
        }
        for (int i = 0; i < 2; ++i) {
            unpack(own->b[i], tile.b + (pair + i * 8) * cols + line, cols);
        }
    }
    multiply(&tile);
    for (int lane = 0; lane < warp_size; ++lane) {
        const auto own = static_cast<const Registers *>(lanes[lane]);
        for (int i = 0; i < 4; ++i) {
            own->d[i] = tile.d[(lane / 4 + i / 2 * 8) * cols + lane % 4 * 2 + i % 2];
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
    grid_meet_warp(line, exchange_rows, &mine);
}

void grid_multiply_halves(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line)
{
    Registers mine = {d, a, b};
    grid_meet_warp(line, multiply_halves, &mine);
}

uint16_t grid_half(float x)
{
    const uint32_t bits = bits_of<uint32_t>(x), magnitude = bits & 0x7fffffff;
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000) {
        return 0x7fff;
    }
    if (magnitude >= 0x477ff000) { /* 65520, from which on the nearest is 2^16, which no half is */
        return sign | 0x7c00;
    }
    const int field = static_cast<int>(magnitude >> 23);
    /* A half in units of its last place: a normal float's bits without what the fields' offsets
     * differ by, or a subnormal's significand. Then as many bits too many. */
    const bool normal = field > 112;
    const int too_many = normal ? 13 : 126 - field;
    const uint32_t from = normal ? magnitude - (112u << 23) : (magnitude & 0x7fffff) | 0x800000;
    if (too_many > 24) {
        return sign; /* less than half of the least */
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
