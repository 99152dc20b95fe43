/* One product as a plain C call, for the JAX and PyTorch front ends. Python passes the function's
 * address to them: the capsule sgemm_kernels._core._c_call. */
#ifndef SGEMM_CALL_H
#define SGEMM_CALL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix of float32 in host or device memory. Element (i, j) is at data + i * row_bytes +
 * j * col_bytes. */
typedef struct {
    void *data;
    int64_t rows, cols, row_bytes, col_bytes;
} SgemmMatrix;

/* Computes out = alpha * A @ B + beta * C with the variant of that name. On a GPU (device >= 0) it
 * queues the product on the stream and does not wait for the GPU, unless the call fails. NULL is
 * the legacy default stream. On the CPU device (device == -1) it returns with the result, and the
 * memory is the host's.
 *
 * The rules are those of Python's run(): A and B are not read if alpha is 0, C is not read if beta
 * is 0 and may then be NULL, and out may overlap A, B and C. The caller needs no GIL, and any
 * number of threads may call. Returns 0, or another number after it has written the reason to
 * `message`. */
int sgemm_call(const char *variant, int device, void *stream, float alpha, const SgemmMatrix *A,
               const SgemmMatrix *B, float beta, const SgemmMatrix *C, const SgemmMatrix *out,
               char *message, size_t message_size);

#ifdef __cplusplus
}
#endif
#endif
