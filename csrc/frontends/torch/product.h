/* Products of PyTorch's tensors: their checks, and the calls of the kernels. */
#ifndef SGEMM_TORCH_PRODUCT_H
#define SGEMM_TORCH_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../c/sgemm_kernels.h"

enum { TORCH_CPU = -1, TORCH_OTHER_DEVICE = -2 };
enum { TORCH_OTHER_DTYPE = -1 };

/* A view of a tensor. */
typedef struct {
    void *data;
    int64_t dims;
    const int64_t *sizes, *strides; /* in elements; borrowed from the tensor */
    int dtype;  /* SGEMM_KERNELS_FLOAT32, FLOAT16 or BFLOAT16, or TORCH_OTHER_DTYPE */
    int device; /* the index of the GPU, TORCH_CPU, or TORCH_OTHER_DEVICE */
} TorchTensor;

/* out = alpha * A @ B + beta * C. Each matrix is 2-D, or with `batched` a 3-D stack. C and out are
 * float32; A and B may have 16 bits. */
typedef struct {
    bool batched, adds; /* adds: there is a C, which is broadcast to the shape of out */
    TorchTensor A, B, C, out;
    float alpha, beta;
} TorchProduct;

enum { TORCH_MESSAGE_BYTES = 640 };

/* Checks the shapes of A, B and C, and computes the shape of the result: the last `dims` entries of
 * result[3]. False with the reason in `message`, in PyTorch's words. */
bool torch_check_shapes(const TorchProduct *product, int64_t result[3], char *message);

/* Whether the tensor has this shape. */
bool torch_has_shape(const TorchTensor *tensor, const int64_t result[3], bool batched);

/* Multiply-adds times two, which may be infinite but never overflows. */
double torch_flops(const TorchProduct *product, const int64_t result[3]);

/* A code of torch_multiply: it failed, and may have changed an operand in the memory of `out`, so
 * that nobody can repeat the product. */
enum { TORCH_OPERAND_CHANGED = -1 };

/* Computes the product on the device of A. `result` is its shape, which `out` has. Returns 0, or
 * TORCH_OPERAND_CHANGED or the code of a Status after it has written the reason to
 * message[TORCH_MESSAGE_BYTES]. Does not wait for a GPU. */
int torch_multiply(const char *variant, void *stream, const TorchProduct *product,
                   const int64_t result[3], char *message);

#endif
