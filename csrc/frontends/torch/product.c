#include "product.h"

#include <inttypes.h>
#include <stdio.h>

/* ------------------------------------------------------------------ shapes */

static void format_shape(const TorchTensor *tensor, char text[96])
{
    int length = snprintf(text, 96, "[");
    for (int64_t i = 0; i < tensor->dims && length < 70; ++i) {
        length += snprintf(text + length, 96 - (size_t)length, "%s%" PRId64, i ? ", " : "",
                           tensor->sizes[i]);
    }
    snprintf(text + length, 96 - (size_t)length, "]");
}

static bool check_dims(const TorchTensor *tensor, const char *name, bool batched, char *message)
{
    if (tensor->dims == (batched ? 3 : 2)) {
        return true;
    }
    snprintf(message, TORCH_MESSAGE_BYTES, "%s must be a %s, but it has %" PRId64 " dimensions",
             name, batched ? "3D tensor" : "matrix", tensor->dims);
    return false;
}

bool torch_check_shapes(const TorchProduct *product, int64_t result[3], char *message)
{
    const TorchTensor *const A = &product->A, *const B = &product->B;
    const bool batched = product->batched;
    if (!check_dims(A,
                    batched         ? "batch1"
                    : product->adds ? "mat1"
                                    : "self",
                    batched, message) ||
        !check_dims(B, batched ? "batch2" : "mat2", batched, message)) {
        return false;
    }
    const int64_t *const a = A->sizes + batched, *const b = B->sizes + batched;
    if (batched && (A->sizes[0] != B->sizes[0] || a[1] != b[0])) {
        snprintf(message, TORCH_MESSAGE_BYTES,
                 "Expected size for first two dimensions of batch2 tensor to be: [%" PRId64
                 ", %" PRId64 "] but got: [%" PRId64 ", %" PRId64 "].",
                 A->sizes[0], a[1], B->sizes[0], b[0]);
        return false;
    }
    if (a[1] != b[0]) {
        snprintf(message, TORCH_MESSAGE_BYTES,
                 "mat1 and mat2 shapes cannot be multiplied (%" PRId64 "x%" PRId64 " and %" PRId64
                 "x%" PRId64 ")",
                 a[0], a[1], b[0], b[1]);
        return false;
    }
    result[0] = batched ? A->sizes[0] : 1;
    result[1] = a[0];
    result[2] = b[1];
    if (!product->adds) {
        return true;
    }
    const TorchTensor *const C = &product->C;
    const int64_t missing = 3 - C->dims; /* dimensions that broadcasting adds in front */
    bool fits = C->dims <= (batched ? 3 : 2);
    for (int64_t i = 0; fits && i < C->dims; ++i) {
        fits = C->sizes[i] == result[missing + i] || C->sizes[i] == 1;
    }
    if (!fits) {
        char shape[96];
        format_shape(C, shape);
        snprintf(message, TORCH_MESSAGE_BYTES,
                 "The expanded size of the tensor must match the product's: input has the shape "
                 "%s, and the product %s%" PRId64 ", %" PRId64 "]",
                 shape, batched ? "a stack of [" : "[", result[1], result[2]);
    }
    return fits;
}

bool torch_has_shape(const TorchTensor *tensor, const int64_t result[3], bool batched)
{
    if (tensor->dims != (batched ? 3 : 2)) {
        return false;
    }
    for (int64_t i = 0; i < tensor->dims; ++i) {
        if (tensor->sizes[i] != result[3 - tensor->dims + i]) {
            return false;
        }
    }
    return true;
}

double torch_flops(const TorchProduct *product, const int64_t result[3])
{
    const int64_t depth = product->A.sizes[product->batched + 1];
    return 2.0 * (double)result[0] * (double)result[1] * (double)result[2] * (double)depth;
}

/* ------------------------------------------------------------------ stacks */

/* A stack of matrices. A matrix without a batch dimension is a stack of one. */
typedef struct {
    void *data;
    int64_t sizes[3], strides[3]; /* batch, rows, columns; strides in elements */
    int dtype;
} Stack;

/* Broadcasts the tensor to the sizes. */
static Stack stack_of(const TorchTensor *tensor, int64_t batch, int64_t rows, int64_t cols)
{
    Stack stack = {tensor->data, {batch, rows, cols}, {0}, tensor->dtype};
    for (int64_t i = 0; i < tensor->dims; ++i) {
        const int64_t at = 3 - tensor->dims + i;
        stack.strides[at] = tensor->sizes[i] == 1 && stack.sizes[at] != 1 ? 0 : tensor->strides[i];
    }
    return stack;
}

typedef struct {
    Stack A, B, C, out;
} Stacks;

static Stacks stacks_of(const TorchProduct *product, const int64_t result[3])
{
    const int64_t depth = product->A.sizes[product->batched + 1];
    return (Stacks){.A = stack_of(&product->A, result[0], result[1], depth),
                    .B = stack_of(&product->B, result[0], depth, result[2]),
                    .C = stack_of(&product->C, result[0], result[1], result[2]),
                    .out = stack_of(&product->out, result[0], result[1], result[2])};
}

/* The first matrix, of float32. */
static sgemm_kernels_matrix matrix_of(const Stack *stack)
{
    return (sgemm_kernels_matrix){stack->data, stack->sizes[1], stack->sizes[2], stack->strides[1],
                                  stack->strides[2]};
}

/* The first matrix, of any of the types. */
static sgemm_kernels_operand operand_of(const Stack *stack)
{
    return (sgemm_kernels_operand){stack->data,       stack->sizes[1],   stack->sizes[2],
                                   stack->strides[1], stack->strides[2], stack->dtype};
}

static int64_t element_bytes(const Stack *stack)
{
    return stack->dtype == SGEMM_KERNELS_FLOAT32 ? 4 : 2;
}

/* Whether the stacks may share a byte. May return true for stacks that do not. */
static bool may_overlap(const Stack *one, const Stack *other)
{
    const Stack *const both[] = {one, other};
    uintptr_t first[2], end[2];
    for (int i = 0; i < 2; ++i) {
        first[i] = end[i] = (uintptr_t)both[i]->data;
        const int64_t bytes = element_bytes(both[i]);
        end[i] += (uintptr_t)bytes;
        for (int axis = 0; axis < 3; ++axis) {
            if (both[i]->sizes[axis] == 0) {
                return false;
            }
            end[i] += (uintptr_t)((both[i]->sizes[axis] - 1) * both[i]->strides[axis] * bytes);
        }
    }
    return first[0] < end[1] && first[1] < end[0];
}

static bool changes_factor(const TorchProduct *product, const Stacks *s)
{
    return product->alpha != 0.0f && (may_overlap(&s->out, &s->A) || may_overlap(&s->out, &s->B));
}

static bool changes_C(const TorchProduct *product, const Stacks *s)
{
    return product->beta != 0.0f && may_overlap(&s->out, &s->C);
}

int torch_multiply(const char *variant, void *stream, const TorchProduct *product,
                   const int64_t result[3], char *message)
{
    const Stacks s = stacks_of(product, result);
    const sgemm_kernels_place place = {product->A.device,
                                       product->A.device == TORCH_CPU ? SGEMM_KERNELS_HOST_MEMORY
                                                                      : SGEMM_KERNELS_GPU_MEMORY,
                                       stream};
    const sgemm_kernels_operand A = operand_of(&s.A), B = operand_of(&s.B);
    const sgemm_kernels_matrix C = matrix_of(&s.C), out = matrix_of(&s.out);
    sgemm_kernels_status status;
    if (sgemm_kernels_multiply_typed(variant, &place, result[0], product->alpha, &A, s.A.strides[0],
                                     &B, s.B.strides[0], product->beta, product->adds ? &C : NULL,
                                     s.C.strides[0], &out, s.out.strides[0],
                                     &status) == SGEMM_KERNELS_OK) {
        return SGEMM_KERNELS_OK;
    }
    snprintf(message, TORCH_MESSAGE_BYTES, "%s", status.message);
    return status.out_changed && (changes_factor(product, &s) || changes_C(product, &s))
               ? TORCH_OPERAND_CHANGED
               : status.code;
}
