/* Warpgroup products with factors from shared memory or registers, with the bits of compute
 * capability 9.0. All 128 threads of a warpgroup call them together. `line` is the calling line of
 * the kernel. */
#ifndef SGEMM_EMULATOR_WGMMA_H
#define SGEMM_EMULATOR_WGMMA_H

#include "multiply_fp16.h"

#pragma GCC visibility push(hidden)

/* The format of both factors, and which of them are MN-major: TMA tiles of `swizzle` bytes of a
 * row of A or B^T for each k, one after the other along k. The next tile of B's columns follows
 * `b_tile_bytes` later. A has one such tile, so its swizzle is 128. */
struct WgmmaFactors {
    HalfFormat format = HalfFormat::fp16;
    bool a_mn_major = false, b_mn_major = false;
    int b_tile_bytes = 0;
};

/* Orders earlier register accesses of the warpgroup before later products. */
void grid_wgmma_fence(int line);

/* d += A @ B, or d = A @ B without accumulation, for fp16 A (64, 16) and B (16, n). n is a multiple
 * of 8 up to 256. Each thread has n / 2 floats of d, as in
 * wgmma.mma_async.sync.aligned.m64nNk16.f32.f16. `a` and `b` are the addresses of A's first row and
 * B's first column in shared memory. The next ones follow `swizzle` bytes apart, 64 or 128, in the
 * layout of TMA tiles. `factors` tells if they are bf16 or MN-major instead. */
void grid_wgmma(float *d, int n, const void *a, const void *b, int swizzle, bool accumulate,
                int line, const WgmmaFactors &factors = {});

/* The same with A in registers: each thread has four pairs of A's elements, as in
 * mma.sync.aligned.m16n8k16, in the rows of its warp. */
void grid_wgmma_registers(float *d, int n, const unsigned (&a)[4], const void *b, int swizzle,
                          bool accumulate, int line);

/* Makes one group of all products that the warpgroup has started since the last commit. */
void grid_wgmma_commit(int line);

/* Waits until at most the newest `left` groups of the warpgroup are pending. */
void grid_wgmma_wait(int left, int line);

#pragma GCC visibility pop

#endif
