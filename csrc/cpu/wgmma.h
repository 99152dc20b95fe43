/* Products by a warpgroup, which reads its factors from shared memory, for kernels on the CPU device:
 * with the bits of compute capability 9.0. All are for the 128 threads of a warpgroup together, which
 * meet at each call: `line` is its place in the kernel. */
#ifndef SGEMM_CPU_WGMMA_H
#define SGEMM_CPU_WGMMA_H

#pragma GCC visibility push(hidden)

/* What the warpgroup's threads have done so far to registers comes before the products that follow. */
void grid_wgmma_fence(int line);

/* d += A @ B, or d = A @ B where it does not accumulate, with halves in A (64, 16) and B (16, n), each
 * thread's n / 2 floats of d as wgmma.mma_async.sync.aligned.m64nNk16.f32.f16.f16 has them; n is a
 * multiple of 8 up to 256. `a` and `b` are where A's first row and B's first column begin in shared
 * memory: the next is `swizzle` bytes further, 64 or 128, and they lie there as copies of boxes put
 * them. */
void grid_wgmma(float *d, int n, const void *a, const void *b, int swizzle, bool accumulate,
                int line);

/* What the warpgroup has begun to multiply since it last said so is one group. */
void grid_wgmma_commit(int line);

/* Until of its groups all but the newest `left` are done. */
void grid_wgmma_wait(int left, int line);

#pragma GCC visibility pop

#endif
