/* What a warp does with tensor cores, as PTX names it, for kernels on the CPU device: with the bits of
 * compute capability 9.0. All but the conversions are for the 32 threads of a warp together, which
 * meet at each call: `line` is its place in the kernel, for messages. */
#ifndef SGEMM_CPU_TENSOR_CORES_H
#define SGEMM_CPU_TENSOR_CORES_H

#include "grid.h"

#pragma GCC visibility push(hidden)

/* As load_matrices, of rows that the warp's threads have read: 16 bytes each. */
void grid_exchange_rows(unsigned (&r)[4], const float4 &row, int line);

/* d += A @ B, with halves in A (16, 16) and B (16, 8), each thread's part of them as
 * mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 has it. */
void grid_multiply_halves(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line);

/* float32 to half, to the nearest, ties to even; NaN becomes 0x7fff. And back, exactly. */
uint16_t grid_half(float x);
float grid_float_of_half(uint16_t h);

#pragma GCC visibility pop

/* Four 8 x 8 matrices of halves from shared memory, as ldmatrix.sync.aligned.m8n8.x4.shared.b16 loads
 * them: threads 0 to 7 name the rows of the first, each 16 bytes at a multiple of 16, and so on. A
 * thread reads its own row, here in the kernel, where checkers watch and accesses are counted. */
static inline void grid_load_matrices(unsigned (&r)[4], const void *row, int line)
{
    const float4 mine = *static_cast<const float4 *>(row);
    grid_exchange_rows(r, mine, line);
}

#endif
