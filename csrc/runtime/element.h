/* Floats of the same value as elements of 16 bits. */
#ifndef SGEMM_ELEMENT_H
#define SGEMM_ELEMENT_H

#include <stdint.h>
#include <string.h>

#include "../base/sgemm.h"

#if defined(__CUDACC__) || defined(__HIPCC__)
#define HOST_AND_DEVICE __host__ __device__
#else
#define HOST_AND_DEVICE
#endif

/* The float32 of the same value. No operation here has a subnormal operand or result, so that a
 * thread that flushes those to zero gets the same. */
HOST_AND_DEVICE static inline uint32_t float_of_float16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t all = (uint32_t)(half & 0x7fff) << 13; /* exponent and mantissa, in place */
    const uint32_t rebias = 127 - 15;
    if (all >= (uint32_t)31 << 23) { /* infinity or NaN */
        return sign | (all + (2 * rebias << 23));
    }
    if (all >= (uint32_t)1 << 23) {
        return sign | (all + (rebias << 23));
    }
    const uint32_t one_more = all + ((rebias + 1) << 23); /* 2^-14 + the value */
    const float least_normal = 6.103515625e-5f;           /* 2^-14 */
    float value;
    memcpy(&value, &one_more, sizeof value);
    value -= least_normal;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return sign | bits;
}

/* The float32 of 16 bits that are a float16 or a bfloat16. */
HOST_AND_DEVICE static inline uint32_t float_of_16_bits(uint16_t bits, ElementType type)
{
    return type == ELEMENT_BFLOAT16 ? (uint32_t)bits << 16 : float_of_float16(bits);
}

#endif
