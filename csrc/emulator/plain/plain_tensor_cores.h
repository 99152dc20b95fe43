/* Tensor cores and conversions to fp16, for plain kernels on the CPU device. Included after
 * plain_device.h. sgemm_kernels/custom/inline_ptx.py turns `asm` statements into calls of these
 * functions. */
#ifndef SGEMM_PLAIN_TENSOR_CORES_H
#define SGEMM_PLAIN_TENSOR_CORES_H

/* An fp16 number. The CPU device converts such numbers, and does not compute with them. */
struct PlainHalf {
    uint16_t bits;
};

static inline PlainHalf __float2half_rn(float x)
{
    return {grid_half(x)};
}
static inline PlainHalf __float2half(float x)
{
    return {grid_half(x)};
}
static inline float __half2float(PlainHalf x)
{
    return grid_float_of_half(x.bits);
}
static inline unsigned short __half_as_ushort(PlainHalf x)
{
    return x.bits;
}
static inline PlainHalf __ushort_as_half(unsigned short bits)
{
    return {bits};
}

/* d = a @ b + c, by a warp: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32. */
static inline void plain_mma_m16n8k16(float &d0, float &d1, float &d2, float &d3, unsigned a0,
                                      unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                      unsigned b1, float c0, float c1, float c2, float c3,
                                      int line = __builtin_LINE())
{
    float sum[4] = {c0, c1, c2, c3};
    const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    grid_multiply_fp16(sum, a, b, line);
    d0 = sum[0], d1 = sum[1], d2 = sum[2], d3 = sum[3];
}

#endif
