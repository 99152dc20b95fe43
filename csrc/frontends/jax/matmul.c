/* The XLA handlers of sgemm_kernels.jax.matmul, for the CPU device and for GPUs. Compiled on first
 * use with the headers of the installed jaxlib (sgemm_kernels/jax.py), so it uses only their C
 * API.
 *
 * The handlers do not set XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE: a captured product may
 * contain memory allocations, and a CUDA graph that contains them cannot become a child graph, as
 * XLA's command buffers need. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../c/sgemm_kernels.h"
#include "xla/ffi/api/c_api.h"

#define EXPORTED __attribute__((visibility("default")))

enum { OPERANDS = 2, VARIANT_BYTES = 64, BATCH_AXES = 64 };
enum { OF_A, OF_B, OF_OUT, BUFFERS };

/* sgemm_kernels_multiply_typed of the package's extension, set before the handlers are
 * registered. */
static typeof(sgemm_kernels_multiply_typed) *call_products;

EXPORTED void sgemm_jax_set_call(void *address)
{
    call_products = (typeof(call_products))address;
}

/* ------------------------------------------------------------------ errors */

static XLA_FFI_Error *failed(const XLA_FFI_CallFrame *frame, const char *message)
{
    XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                      .message = message,
                                      .errc = XLA_FFI_Error_Code_INTERNAL};
    return frame->api->XLA_FFI_Error_Create(&args);
}

/* ------------------------------------------------------------------ the call's arguments */

typedef struct {
    char variant[VARIANT_BYTES];
    bool transpose_a, transpose_b;
} Options;

static bool read_options(const XLA_FFI_Attrs *attributes, Options *options)
{
    int found = 0;
    for (int64_t index = 0; index < attributes->size; ++index) {
        const XLA_FFI_ByteSpan name = *attributes->names[index];
        const bool is_a = name.len == 11 && memcmp(name.ptr, "transpose_a", 11) == 0;
        const bool is_b = name.len == 11 && memcmp(name.ptr, "transpose_b", 11) == 0;
        if (is_a || is_b) {
            const XLA_FFI_Scalar *const scalar = attributes->attrs[index];
            if (attributes->types[index] != XLA_FFI_AttrType_SCALAR ||
                scalar->dtype != XLA_FFI_DataType_PRED) {
                return false;
            }
            *(is_a ? &options->transpose_a : &options->transpose_b) = *(const bool *)scalar->value;
            ++found;
        } else if (name.len == 7 && memcmp(name.ptr, "variant", 7) == 0) {
            const XLA_FFI_ByteSpan *const text = attributes->attrs[index];
            if (attributes->types[index] != XLA_FFI_AttrType_STRING || text->len >= VARIANT_BYTES) {
                return false;
            }
            memcpy(options->variant, text->ptr, text->len);
            options->variant[text->len] = '\0';
            ++found;
        }
    }
    return found == 3;
}

/* The type of an operand's elements in the C interface; -1 if it has none. */
static int dtype_of(const XLA_FFI_Buffer *buffer)
{
    return buffer->dtype == XLA_FFI_DataType_F32    ? SGEMM_KERNELS_FLOAT32
           : buffer->dtype == XLA_FFI_DataType_F16  ? SGEMM_KERNELS_FLOAT16
           : buffer->dtype == XLA_FFI_DataType_BF16 ? SGEMM_KERNELS_BFLOAT16
                                                    : -1;
}

/* Whether the buffers have two matrix dimensions each and equally many batch dimensions. Each batch
 * dimension of an operand is the result's, or 1. The caller has checked the types. */
static bool shapes_fit(const XLA_FFI_Buffer *const operands[OPERANDS], const XLA_FFI_Buffer *result)
{
    for (int index = 0; index < OPERANDS; ++index) {
        const XLA_FFI_Buffer *const operand = operands[index];
        if (operand->rank != result->rank || dtype_of(operand) < 0) {
            return false;
        }
        for (int64_t axis = 0; axis < result->rank - 2; ++axis) {
            if (operand->dims[axis] != result->dims[axis] && operand->dims[axis] != 1) {
                return false;
            }
        }
    }
    return result->rank >= 2 && result->rank <= 2 + BATCH_AXES &&
           result->dtype == XLA_FFI_DataType_F32;
}

static bool has_buffers(const XLA_FFI_CallFrame *frame)
{
    return frame->args.size == OPERANDS && frame->rets.size == 1 &&
           frame->args.types[0] == XLA_FFI_ArgType_BUFFER &&
           frame->args.types[1] == XLA_FFI_ArgType_BUFFER &&
           frame->rets.types[0] == XLA_FFI_RetType_BUFFER;
}

/* ------------------------------------------------------------------ batches */

/* The first matrix of a row-major buffer, `offset` elements after its beginning. */
static sgemm_kernels_operand operand_of(const XLA_FFI_Buffer *buffer, int64_t offset,
                                        bool transposed)
{
    const int64_t rows = buffer->dims[buffer->rank - 2], cols = buffer->dims[buffer->rank - 1];
    const int dtype = dtype_of(buffer);
    const char *const data =
        (const char *)buffer->data + offset * (dtype == SGEMM_KERNELS_FLOAT32 ? 4 : 2);
    return transposed ? (sgemm_kernels_operand){data, cols, rows, 1, cols, dtype}
                      : (sgemm_kernels_operand){data, rows, cols, cols, 1, dtype};
}

/* The same of the result. */
static sgemm_kernels_matrix matrix_of(const XLA_FFI_Buffer *buffer, int64_t offset)
{
    const int64_t rows = buffer->dims[buffer->rank - 2], cols = buffer->dims[buffer->rank - 1];
    return (sgemm_kernels_matrix){(float *)buffer->data + offset, rows, cols, cols, 1};
}

/* An axis of the batch. The stride of a broadcast operand is 0. */
typedef struct {
    int64_t length;
    int64_t stride[BUFFERS];
} Axis;

/* Whether each step of an outer axis continues the steps of the inner one in every buffer. */
static bool continues(const Axis *outer, const Axis *inner)
{
    bool does = true;
    for (int index = 0; index < BUFFERS; ++index) {
        does = does && outer->stride[index] == inner->length * inner->stride[index];
    }
    return does;
}

/* Stores the axes of the batch, merged where possible, and returns their number. The longest one is
 * first. There is at least one. */
static int axes_of(const XLA_FFI_Buffer *const buffers[BUFFERS], Axis axes[BATCH_AXES])
{
    const XLA_FFI_Buffer *const out = buffers[OF_OUT];
    int64_t step[BUFFERS];
    for (int index = 0; index < BUFFERS; ++index) {
        step[index] = buffers[index]->dims[out->rank - 2] * buffers[index]->dims[out->rank - 1];
    }
    int count = 0, longest = 0;
    axes[0] = (Axis){.length = 1};
    for (int64_t axis = out->rank - 3; axis >= 0; --axis) {
        Axis own = {.length = out->dims[axis]};
        for (int index = 0; index < BUFFERS; ++index) {
            const int64_t length = buffers[index]->dims[axis];
            own.stride[index] = length == 1 ? 0 : step[index];
            step[index] *= length;
        }
        if (own.length != 1 && count > 0 && continues(&own, &axes[count - 1])) {
            axes[count - 1].length *= own.length;
        } else if (own.length != 1) {
            axes[count++] = own;
        }
    }
    for (int axis = 1; axis < count; ++axis) {
        longest = axes[axis].length > axes[longest].length ? axis : longest;
    }
    const Axis first = axes[longest];
    axes[longest] = axes[0];
    axes[0] = first;
    return count > 0 ? count : 1;
}

/* ------------------------------------------------------------------ the handlers */

/* Computes every product of the batch on a device: one call for all products along the longest
 * axis. Only axes that do not merge with it need more calls. */
static XLA_FFI_Error *multiply(const XLA_FFI_CallFrame *frame, const sgemm_kernels_place *place)
{
    Options options;
    if (!has_buffers(frame) || !read_options(&frame->attrs, &options)) {
        return failed(frame, "sgemm_kernels: the call has other arguments than this version's "
                             "matmul: compile the function again");
    }
    const XLA_FFI_Buffer *const buffers[BUFFERS] = {frame->args.args[0], frame->args.args[1],
                                                    frame->rets.rets[0]};
    if (!shapes_fit(buffers, buffers[OF_OUT])) {
        return failed(frame, "sgemm_kernels: the operands' shapes do not fit the result's");
    }
    Axis axes[BATCH_AXES];
    const int count = axes_of(buffers, axes);
    int64_t calls = 1;
    for (int axis = 1; axis < count; ++axis) {
        calls *= axes[axis].length;
    }
    sgemm_kernels_status status;
    for (int64_t call = 0; call < calls; ++call) {
        int64_t offset[BUFFERS] = {0};
        int64_t left = call;
        for (int axis = 1; axis < count; left /= axes[axis++].length) {
            for (int index = 0; index < BUFFERS; ++index) {
                offset[index] += left % axes[axis].length * axes[axis].stride[index];
            }
        }
        const sgemm_kernels_operand A = operand_of(buffers[OF_A], offset[OF_A],
                                                   options.transpose_a),
                                    B = operand_of(buffers[OF_B], offset[OF_B],
                                                   options.transpose_b);
        const sgemm_kernels_matrix out = matrix_of(buffers[OF_OUT], offset[OF_OUT]);
        const int64_t *const stride = axes[0].stride;
        if (call_products(options.variant, place, axes[0].length, 1.0f, &A, stride[OF_A], &B,
                          stride[OF_B], 0.0f, NULL, 0, &out, stride[OF_OUT],
                          &status) != SGEMM_KERNELS_OK) {
            return failed(frame, status.message);
        }
    }
    return NULL;
}

/* Answers XLA's question for the version of the headers. True if the call was this question. */
static bool told_version(const XLA_FFI_CallFrame *frame)
{
    /* jaxlib has renamed this type. */
    const __typeof__(frame->extension_start) extension = frame->extension_start;
    if (!extension || extension->type != XLA_FFI_Extension_Metadata) {
        return false;
    }
    XLA_FFI_Metadata *const metadata = ((struct XLA_FFI_Metadata_Extension *)extension)->metadata;
    metadata->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    metadata->api_version.extension_start = NULL;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = 0;
    return true;
}

EXPORTED XLA_FFI_Error *sgemm_jax_cpu(XLA_FFI_CallFrame *frame)
{
    const sgemm_kernels_place place = {SGEMM_KERNELS_CPU, SGEMM_KERNELS_HOST_MEMORY, NULL};
    return told_version(frame) ? NULL : multiply(frame, &place);
}

EXPORTED XLA_FFI_Error *sgemm_jax_gpu(XLA_FFI_CallFrame *frame)
{
    if (told_version(frame)) {
        return NULL;
    }
    XLA_FFI_Stream_Get_Args stream = {.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE,
                                      .ctx = frame->ctx};
    XLA_FFI_Error *error = frame->api->XLA_FFI_Stream_Get(&stream);
    XLA_FFI_DeviceOrdinal_Get_Args device = {
        .struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, .ctx = frame->ctx};
    error = error ? error : frame->api->XLA_FFI_DeviceOrdinal_Get(&device);
    const sgemm_kernels_place place = {device.device_ordinal, SGEMM_KERNELS_GPU_MEMORY,
                                       stream.stream};
    return error ? error : multiply(frame, &place);
}
