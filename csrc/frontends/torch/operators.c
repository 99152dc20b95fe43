#include "operators.h"

#include <stdio.h>
#include <string.h>

#include "../../runtime/catalog.h"
#include "../../runtime/device.h"

bool (*torch_open_library)(char *message);

static int dtype_of(int32_t code)
{
    return code == torch_abi.float32()    ? SGEMM_KERNELS_FLOAT32
           : code == torch_abi.float16()  ? SGEMM_KERNELS_FLOAT16
           : code == torch_abi.bfloat16() ? SGEMM_KERNELS_BFLOAT16
                                          : TORCH_OTHER_DTYPE;
}

bool torch_read(TorchHandle handle, bool writes, TorchTensor *tensor)
{
    int32_t dtype, kind, index;
    int64_t *sizes, *strides;
    if (torch_abi.dtype(handle, &dtype) || torch_abi.device_type(handle, &kind) ||
        torch_abi.device_index(handle, &index) || torch_abi.dims(handle, &tensor->dims) ||
        torch_abi.sizes(handle, &sizes) || torch_abi.strides(handle, &strides)) {
        return false;
    }
    tensor->sizes = sizes;
    tensor->strides = strides;
    tensor->dtype = dtype_of(dtype);
    tensor->device = kind == torch_abi.cuda()  ? index
                     : kind == torch_abi.cpu() ? TORCH_CPU
                                               : TORCH_OTHER_DEVICE;
    const void *data;
    const int32_t error = writes ? torch_abi.mutable_data(handle, &tensor->data)
                                 : torch_abi.const_data(handle, &data);
    if (!error && !writes) {
        tensor->data = (void *)data;
    }
    return !error;
}

void torch_free(TorchHandle handle)
{
    if (handle) {
        torch_abi.delete_tensor(handle);
    }
}

bool torch_free_idle(int device)
{
    const Device *const gpus = device < 0 ? NULL : device_kinds[DEVICE_CUDA];
    if (gpus) {
        gpus->give_idle_back();
    }
    return gpus != NULL;
}

TorchHandle torch_new(TorchHandle like, int32_t dtype, const int64_t result[3], bool batched,
                      char *message)
{
    const int64_t rows = result[1] > 0 ? result[1] : 1, cols = result[2] > 0 ? result[2] : 1;
    const int64_t strides[3] = {rows * cols, cols, 1}; /* PyTorch's, of empty tensors too */
    const int first = batched ? 0 : 1;
    int32_t kind, index;
    TorchHandle tensor = NULL;
    if (!torch_abi.device_type(like, &kind) && !torch_abi.device_index(like, &index)) {
        const int device = kind == torch_abi.cuda() ? index : TORCH_CPU;
        int32_t error;
        int tries = 0;
        do {
            error = torch_abi.empty(3 - first, result + first, strides + first, dtype, kind, index,
                                    &tensor);
        } while (error && ++tries < 2 && torch_free_idle(device));
        if (!error) {
            return tensor;
        }
    }
    const char *const text = torch_abi.last_error ? torch_abi.last_error() : NULL;
    if (text) {
        snprintf(message, TORCH_MESSAGE_BYTES, "%s", text);
    } else { /* programs look for these words */
        snprintf(message, TORCH_MESSAGE_BYTES,
                 "CUDA out of memory, or host memory for CPU tensors: the result has %.3g elements",
                 (double)result[0] * (double)result[1] * (double)result[2]);
    }
    return NULL;
}

bool torch_stream(int device, void **stream)
{
    *stream = NULL;
    return device < 0 || (torch_abi.current_stream && !torch_abi.current_stream(device, stream));
}

/* ------------------------------------------------------------------ the operators */

typedef struct {
    const char *name, *name_of_A, *name_of_B;
    bool batched, adds, has_out;
} Operator;

/* Owned handles of one call. */
typedef struct {
    TorchHandle C, A, B, variant, out;
} Arguments;

static double double_of(TorchValue value)
{
    double number;
    memcpy(&number, &value, sizeof number);
    return number;
}

static TorchHandle handle_of(TorchValue value)
{
    return (TorchHandle)(uintptr_t)value;
}

static bool read(const char *name, TorchHandle handle, bool writes, TorchTensor *tensor,
                 char *message)
{
    if (torch_read(handle, writes, tensor)) {
        return true;
    }
    snprintf(message, TORCH_MESSAGE_BYTES, "%s has no strides: pass a dense tensor", name);
    return false;
}

/* Reads an operand and checks that a product can use it. */
static bool read_operand(const char *name, TorchHandle handle, TorchTensor *tensor, char *message)
{
    if (!read(name, handle, false, tensor, message)) {
        return false;
    }
    if (tensor->dtype == TORCH_OTHER_DTYPE) {
        int32_t code = -1;
        torch_abi.dtype(handle, &code);
        const char *const dtype = torch_dtype_name(code);
        snprintf(message, TORCH_MESSAGE_BYTES,
                 "%s is %s but must be float32, float16 or bfloat16: pass %s.%s", name, dtype, name,
                 torch_dtype_conversion(dtype, true));
        return false;
    }
    return true;
}

/* Reads `input` or `out` and checks that it is float32. */
static bool read_float32(const char *name, TorchHandle handle, bool writes, TorchTensor *tensor,
                         char *message)
{
    if (!read(name, handle, writes, tensor, message)) {
        return false;
    }
    if (tensor->dtype != SGEMM_KERNELS_FLOAT32) {
        int32_t code = -1;
        torch_abi.dtype(handle, &code);
        const char *const dtype = torch_dtype_name(code);
        snprintf(message, TORCH_MESSAGE_BYTES, "%s is %s but must be float32: ", name, dtype);
        const size_t length = strlen(message);
        if (writes) { /* a converted copy would get the result */
            snprintf(message + length, TORCH_MESSAGE_BYTES - length, "omit %s", name);
        } else {
            snprintf(message + length, TORCH_MESSAGE_BYTES - length, "pass %s.%s", name,
                     torch_dtype_conversion(dtype, false));
        }
        return false;
    }
    return true;
}

static bool check_device(const char *name, const TorchTensor *tensor, int device, char *message)
{
    if (tensor->device == device) {
        return true;
    }
    snprintf(message, TORCH_MESSAGE_BYTES,
             "the tensors are on different devices: move %s with its to()", name);
    return false;
}

/* Tells autograd that `out` is about to change. False if PyTorch does not allow that. */
static bool announce_write(TorchHandle out, char *message)
{
    /* A copy of a tensor to itself copies nothing, but counts as a change. */
    if (torch_abi.copy(out, out, 0)) {
        snprintf(message, TORCH_MESSAGE_BYTES, "PyTorch does not allow writes to out: omit out");
        return false;
    }
    return true;
}

/* Opens the library that the variant needs on this device, on its first use. */
static bool open_library(const char *variant, int device, char *message)
{
    const Variant *const chosen = catalog_find(variant);
    return device < 0 || !chosen || !variant_is_library(chosen) || torch_open_library(message);
}

/* Computes the product. Without an `out` among the arguments, stores a new tensor there. False with
 * the reason in `message`. */
static bool compute(const Operator *op, Arguments *arguments, TorchProduct *product, char *message)
{
    if (!read_operand(op->name_of_A, arguments->A, &product->A, message) ||
        !read_operand(op->name_of_B, arguments->B, &product->B, message) ||
        !check_device(op->name_of_B, &product->B, product->A.device, message)) {
        return false;
    }
    if (op->adds && (!read_float32("input", arguments->C, false, &product->C, message) ||
                     !check_device("input", &product->C, product->A.device, message))) {
        return false;
    }
    int64_t result[3];
    if (!torch_check_shapes(product, result, message)) {
        return false;
    }
    if (!op->has_out) {
        arguments->out = torch_new(arguments->A, torch_abi.float32(), result, op->batched, message);
        if (!arguments->out) {
            return false;
        }
    }
    if (!read_float32("out", arguments->out, true, &product->out, message) ||
        !check_device("out", &product->out, product->A.device, message)) {
        return false;
    }
    if (!torch_has_shape(&product->out, result, op->batched)) {
        snprintf(message, TORCH_MESSAGE_BYTES,
                 "out does not have the shape of the result: pass a tensor of shape "
                 "(%s%lld, %lld)",
                 op->batched ? "batch, " : "", (long long)result[1], (long long)result[2]);
        return false;
    }
    const char *variant;
    void *stream;
    if (torch_abi.string_data(arguments->variant, &variant) ||
        !torch_stream(product->A.device, &stream)) {
        snprintf(message, TORCH_MESSAGE_BYTES, "PyTorch did not give the variant or the stream");
        return false;
    }
    if (!open_library(variant, product->A.device, message)) {
        return false;
    }
    if (op->has_out && !announce_write(arguments->out, message)) {
        return false;
    }
    return torch_multiply(variant, stream, product, result, message) == 0;
}

static void run(const Operator *op, TorchValue *stack)
{
    /* The order of arguments in the schemas of sgemm_kernels/torch.py. */
    const TorchValue *next = stack;
    Arguments arguments = {0};
    TorchProduct product = {.batched = op->batched, .adds = op->adds, .alpha = 1.0f};
    if (op->adds) {
        arguments.C = handle_of(*next++);
    }
    arguments.A = handle_of(*next++);
    arguments.B = handle_of(*next++);
    if (op->adds) {
        product.beta = (float)double_of(*next++);
        product.alpha = (float)double_of(*next++);
    }
    arguments.variant = handle_of(*next++);
    if (op->has_out) {
        arguments.out = handle_of(*next++);
    }

    char reason[TORCH_MESSAGE_BYTES] = "", message[TORCH_MESSAGE_BYTES + 64];
    const bool computed = compute(op, &arguments, &product, reason);
    torch_free(arguments.C);
    torch_free(arguments.A);
    torch_free(arguments.B);
    torch_abi.delete_string(arguments.variant);
    if (!computed || op->has_out) { /* out belongs to the caller: the schema returns nothing */
        torch_free(arguments.out);
    }
    if (!computed) {
        snprintf(message, sizeof message, "%s: %s", op->name, reason);
        torch_abi.check(false, op->name, __FILE__, __LINE__, message);
    }
    if (!op->has_out) {
        stack[0] = (TorchValue)(uintptr_t)arguments.out;
    }
}

#define OPERATOR(function, text, ...)                                                              \
    static void function(TorchValue *stack, uint64_t arguments, uint64_t results)                  \
    {                                                                                              \
        static const Operator op = {text, __VA_ARGS__};                                            \
        (void)arguments;                                                                           \
        (void)results;                                                                             \
        run(&op, stack);                                                                           \
    }

OPERATOR(mm, "sgemm_kernels::mm", "input", "mat2", false, false, false)
OPERATOR(mm_out, "sgemm_kernels::mm.out", "input", "mat2", false, false, true)
OPERATOR(addmm, "sgemm_kernels::addmm", "mat1", "mat2", false, true, false)
OPERATOR(addmm_out, "sgemm_kernels::addmm.out", "mat1", "mat2", false, true, true)
OPERATOR(bmm, "sgemm_kernels::bmm", "input", "mat2", true, false, false)
OPERATOR(bmm_out, "sgemm_kernels::bmm.out", "input", "mat2", true, false, true)
OPERATOR(baddbmm, "sgemm_kernels::baddbmm", "batch1", "batch2", true, true, false)
OPERATOR(baddbmm_out, "sgemm_kernels::baddbmm.out", "batch1", "batch2", true, true, true)

Status torch_add_operators(void)
{
    static const struct {
        const char *name;
        TorchKernel *kernel;
    } all[] = {{"mm", mm},           {"mm.out", mm_out},          {"addmm", addmm},
               {"bmm", bmm},         {"addmm.out", addmm_out},    {"bmm.out", bmm_out},
               {"baddbmm", baddbmm}, {"baddbmm.out", baddbmm_out}};
    static const char *const keys[] = {"CPU", "CUDA"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; ++k) {
        TorchHandle library; /* never deleted: the operators exist as long as the process */
        int32_t error = torch_abi.implement("sgemm_kernels", keys[k], __FILE__, __LINE__, &library);
        for (size_t i = 0; !error && i < sizeof all / sizeof *all; ++i) {
            error = torch_abi.add_kernel(library, all[i].name, all[i].kernel, TORCH_WRITTEN_FOR);
        }
        if (error) {
            return status_error(STATUS_UNSUPPORTED,
                                "PyTorch did not register the operators of sgemm_kernels");
        }
    }
    return status_ok();
}
