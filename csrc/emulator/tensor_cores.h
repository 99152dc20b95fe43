/* Warp-level tensor core instructions, as in PTX, with the bits of the GPU in tensor_core_model.h.
 * Except for the conversions, all 32 threads of the warp call them together. `line` is the calling
 * line of the kernel, for messages. */
#ifndef SGEMM_EMULATOR_TENSOR_CORES_H
#define SGEMM_EMULATOR_TENSOR_CORES_H

#include "grid.h"

#pragma GCC visibility push(hidden)

/* Like load_matrices, from rows of 16 bytes that the warp's threads have read. */
void grid_exchange_rows(unsigned (&r)[4], const float4 &row, int line);

/* d += A @ B for fp16 A (16, 16) and B (16, 8), distributed over threads as in
 * mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32. */
void grid_multiply_fp16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line);

/* float32 to half, to nearest even; NaN becomes 0x7fff. And back, exactly. */
uint16_t grid_half(float x);
float grid_float_of_half(uint16_t h);

#pragma GCC visibility pop

/* Loads four 8 x 8 fp16 matrices from shared memory, like ldmatrix.sync.aligned.m8n8.x4.shared.b16:
 * threads 0 to 7 pass the addresses of the first one's rows, 16 bytes each and 16-byte aligned, and
 * so on. Each thread reads its own row here, in the kernel's code, where checkers watch and
 * accesses are counted. */
static inline void grid_load_matrices(unsigned (&r)[4], const void *row, int line)
{
    const float4 mine = *static_cast<const float4 *>(row);
    grid_exchange_rows(r, mine, line);
}

#endif
