/* Floats and their bit patterns. */
#ifndef SGEMM_EMULATOR_FLOAT_BITS_H
#define SGEMM_EMULATOR_FLOAT_BITS_H

#include <stdint.h>
#include <string.h>

/* Reinterprets the bits as another type of the same size. */
template <class To, class From> static inline To bits_of(From from)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* 2^exponent, for exponents of normal floats. */
static inline float power_of_two(int exponent)
{
    return bits_of<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

#endif
