/* Single-precision matrix products on NVIDIA and AMD GPUs, and on the CPU: the C interface.
 *
 *     out = alpha * A @ B + beta * C
 *
 * Any number of threads may call these functions at the same time. They print nothing, never end
 * the process, and change no state of the caller. Signal handlers of the calling thread run after
 * the call, except those of its own faults. */
#ifndef SGEMM_KERNELS_H
#define SGEMM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SGEMM_KERNELS_API __attribute__((visibility("default")))

/* A matrix. Element (i, j) is data[i * row_stride + j * col_stride]; strides count elements and may
 * be negative or zero. Row-major: {data, rows, cols, ld, 1}. Column-major, as in Fortran:
 * {data, rows, cols, 1, ld}. Neither is copied to be transposed. */
typedef struct {
    float *data;
    int64_t rows, cols;
    int64_t row_stride, col_stride;
} sgemm_kernels_matrix;

/* The types of an operand's elements. Results, and C, are float32. */
enum { SGEMM_KERNELS_FLOAT32 = 0, SGEMM_KERNELS_FLOAT16 = 1, SGEMM_KERNELS_BFLOAT16 = 2 };

/* A matrix that is only read, with elements of one of these types. */
typedef struct {
    const void *data;
    int64_t rows, cols;
    int64_t row_stride, col_stride; /* in elements */
    int dtype;
} sgemm_kernels_operand;

/* The device that is not a GPU. It computes the same products with the same kernels, and is slow.
 * GPUs have the indices 0, 1, ... */
enum { SGEMM_KERNELS_CPU = -1 };

enum { SGEMM_KERNELS_HOST_MEMORY = 0, SGEMM_KERNELS_GPU_MEMORY = 1 };

/* Where a product is computed, and where its matrices are. The stream (cudaStream_t or hipStream_t)
 * is for matrices in GPU memory; NULL is the legacy default stream. */
typedef struct {
    int device;
    int memory;
    void *stream;
} sgemm_kernels_place;

enum {
    SGEMM_KERNELS_OK = 0,
    SGEMM_KERNELS_DEVICE = 1,        /* a device is missing, unusable, or failed */
    SGEMM_KERNELS_OUT_OF_MEMORY = 2, /* on the host or on a device */
    SGEMM_KERNELS_UNSUPPORTED = 3,   /* the variant cannot run on that device or in that build */
    SGEMM_KERNELS_INVALID = 4        /* the request is invalid on any device */
};

/* The result of a call. */
typedef struct {
    int code;          /* SGEMM_KERNELS_OK, or the kind of failure */
    int out_changed;   /* 0: `out` has its old content; 1: it may have been written to */
    char message[504]; /* what is wrong, what was found, what to do; empty after success */
} sgemm_kernels_status;

/* Finds a device by name: "cpu", "cuda" (the first usable GPU), or "cuda:1"; "hip" in a build for
 * AMD GPUs. NULL: the first usable GPU, under either name. Sets *device and returns
 * SGEMM_KERNELS_OK, or returns the kind of failure. `status` may be NULL. */
SGEMM_KERNELS_API int sgemm_kernels_find_device(const char *name, int *device,
                                                sgemm_kernels_status *status);

/* The name of a kernel variant, 0 <= index; NULL beyond the last. "auto" is usually the best. */
SGEMM_KERNELS_API const char *sgemm_kernels_variant(int index);

/* Computes out = alpha * A @ B + beta * C with the variant of that name.
 *
 * A is M x K, B is K x N, C and out are M x N. A and B are not read if alpha is 0. C is not read if
 * beta is 0 and may then be NULL. `out` may be C, and may overlap A, B and C: the result is as if
 * they had been copied first.
 *
 * Matrices in host memory: the call returns with the result. Matrices in GPU memory, which is the
 * memory of place->device: the call queues the product on place->stream and does not wait for the
 * GPU, unless it fails.
 *
 * Returns status->code. `status` may be NULL. */
SGEMM_KERNELS_API int sgemm_kernels_multiply(const char *variant, const sgemm_kernels_place *place,
                                             float alpha, const sgemm_kernels_matrix *A,
                                             const sgemm_kernels_matrix *B, float beta,
                                             const sgemm_kernels_matrix *C,
                                             const sgemm_kernels_matrix *out,
                                             sgemm_kernels_status *status);

/* The same for a batch of `count` products. A, B, C and out describe the matrices of the first one;
 * those of the next begin stride_A, stride_B, stride_C and stride_out elements later. With a stride
 * of 0 all products read the same matrix. With a count of 0 nothing is computed, and the matrices
 * may be NULL. */
SGEMM_KERNELS_API int sgemm_kernels_multiply_batched(
    const char *variant, const sgemm_kernels_place *place, int64_t count, float alpha,
    const sgemm_kernels_matrix *A, int64_t stride_A, const sgemm_kernels_matrix *B,
    int64_t stride_B, float beta, const sgemm_kernels_matrix *C, int64_t stride_C,
    const sgemm_kernels_matrix *out, int64_t stride_out, sgemm_kernels_status *status);

/* The same for `count` products of any shapes. A, B, C and out are arrays of `count` matrices. Many
 * products can share a launch on a GPU. An `out` may overlap A, B and C of any product; the
 * matrices of `out` must not overlap each other. All are checked before any is computed. With a
 * count of 0 the arrays may be NULL. */
SGEMM_KERNELS_API int sgemm_kernels_multiply_many(
    const char *variant, const sgemm_kernels_place *place, int64_t count, float alpha,
    const sgemm_kernels_matrix *A, const sgemm_kernels_matrix *B, float beta,
    const sgemm_kernels_matrix *C, const sgemm_kernels_matrix *out, sgemm_kernels_status *status);

/* sgemm_kernels_multiply_batched for operands of 16 bits. A and B may have different types. The
 * result is float32, and is as exact as if both had been converted to float32 before. Two operands
 * of the same 16-bit type are multiplied as they are by variant "auto", if the GPU has a kernel for
 * them; every other variant multiplies float32 copies. */
SGEMM_KERNELS_API int sgemm_kernels_multiply_typed(
    const char *variant, const sgemm_kernels_place *place, int64_t count, float alpha,
    const sgemm_kernels_operand *A, int64_t stride_A, const sgemm_kernels_operand *B,
    int64_t stride_B, float beta, const sgemm_kernels_matrix *C, int64_t stride_C,
    const sgemm_kernels_matrix *out, int64_t stride_out, sgemm_kernels_status *status);

/* sgemm_kernels_multiply_many for such operands. */
SGEMM_KERNELS_API int sgemm_kernels_multiply_many_typed(
    const char *variant, const sgemm_kernels_place *place, int64_t count, float alpha,
    const sgemm_kernels_operand *A, const sgemm_kernels_operand *B, float beta,
    const sgemm_kernels_matrix *C, const sgemm_kernels_matrix *out, sgemm_kernels_status *status);

/* Host memory, aligned to 64 bytes, that the GPU reads and writes directly: it is pinned, unless
 * the limit (half of the memory that this process may use) is reached. Products of matrices in
 * other memory take longer, because they are copied to pinned memory first. On SGEMM_KERNELS_CPU it
 * is ordinary memory. NULL if there is none. Freed memory is kept for later calls. */
SGEMM_KERNELS_API void *sgemm_kernels_allocate(int device, size_t bytes);

/* Frees such memory. Does nothing for NULL. */
SGEMM_KERNELS_API void sgemm_kernels_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
