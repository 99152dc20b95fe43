#include "dispatch_override.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operators.h"

const char *const torch_operator_names[TORCH_OPERATORS] = {
    [TORCH_MM] = "mm",
    [TORCH_MM_OUT] = "mm.out",
    [TORCH_BMM] = "bmm",
    [TORCH_BMM_OUT] = "bmm.out",
    [TORCH_ADDMM] = "addmm",
    [TORCH_ADDMM_OUT] = "addmm.out",
    [TORCH_ADDMM_IN_PLACE] = "addmm_",
    [TORCH_BADDBMM] = "baddbmm",
    [TORCH_BADDBMM_OUT] = "baddbmm.out",
    [TORCH_BADDBMM_IN_PLACE] = "baddbmm_",
    [TORCH_MM_DTYPE] = "mm.dtype",
    [TORCH_MM_DTYPE_OUT] = "mm.dtype_out",
    [TORCH_BMM_DTYPE] = "bmm.dtype",
    [TORCH_BMM_DTYPE_OUT] = "bmm.dtype_out",
    [TORCH_ADDMM_DTYPE] = "addmm.dtype",
    [TORCH_ADDMM_DTYPE_OUT] = "addmm.dtype_out",
    [TORCH_BADDBMM_DTYPE] = "baddbmm.dtype",
    [TORCH_BADDBMM_DTYPE_OUT] = "baddbmm.dtype_out",
};

const char *const torch_outcome_names[TORCH_OUTCOMES] = {
    [TORCH_TAKEN] = "taken",        [TORCH_LEFT_DTYPE] = "dtype",
    [TORCH_LEFT_DEVICE] = "device", [TORCH_LEFT_LAYOUT] = "layout",
    [TORCH_LEFT_SHAPE] = "shape",   [TORCH_LEFT_EMPTY] = "empty",
    [TORCH_LEFT_SMALL] = "small",   [TORCH_LEFT_TF32] = "tf32",
    [TORCH_LEFT_SCALAR] = "scalar", [TORCH_LEFT_UNSUPPORTED] = "unsupported",
    [TORCH_LEFT_FAILED] = "failed", [TORCH_RAISED] = "raised",
};

/* ------------------------------------------------------------------ counts and settings */

static atomic_llong counted[TORCH_OPERATORS][TORCH_OUTCOMES];
static _Atomic(const TorchSettings *) current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_failure[TORCH_MESSAGE_BYTES]; /* under the lock */
static TorchHandle libraries[2];               /* of CPU and CUDA; under the lock */

void torch_count(TorchOperator op, TorchOutcome outcome)
{
    atomic_fetch_add_explicit(&counted[op][outcome], 1, memory_order_relaxed);
}

void torch_counts(int64_t counts[TORCH_OPERATORS][TORCH_OUTCOMES], bool reset)
{
    for (int i = 0; i < TORCH_OPERATORS; ++i) {
        for (int j = 0; j < TORCH_OUTCOMES; ++j) {
            counts[i][j] = reset ? atomic_exchange(&counted[i][j], 0) : atomic_load(&counted[i][j]);
        }
    }
}

void torch_last_failure(char message[TORCH_MESSAGE_BYTES])
{
    pthread_mutex_lock(&lock);
    memcpy(message, last_failure, TORCH_MESSAGE_BYTES);
    pthread_mutex_unlock(&lock);
}

const TorchSettings *torch_settings(void)
{
    return atomic_load_explicit(&current, memory_order_acquire);
}

/* ------------------------------------------------------------------ the decision */

/* Whether PyTorch may round the operands of float32 products on a GPU to fewer bits. */
static bool precision_is_reduced(const TorchSettings *settings)
{
    /* The numbers of PyTorch's C++ enumerations. torch.py compares them with PyTorch's own names
     * before it trusts them. */
    enum { CUDA = 1, MATMUL = 3, NONE = 0, IEEE = 1 };
    if (settings->reduced) {
        return settings->reduced();
    }
    const int precision = torch_abi.precision(torch_abi.context, CUDA, MATMUL);
    return precision != NONE && precision != IEEE;
}

/* Whether PyTorch computes the product in float32, or adds in float32 and returns float32. */
static bool has_dtypes(const TorchProduct *product, bool typed)
{
    const int of_A = product->A.dtype, of_B = product->B.dtype;
    return of_A == of_B &&
           (of_A == SGEMM_KERNELS_FLOAT32 || (typed && of_A != TORCH_OTHER_DTYPE)) &&
           (!product->adds || product->C.dtype == SGEMM_KERNELS_FLOAT32);
}

TorchOutcome torch_decide(const TorchSettings *settings, const TorchProduct *product, bool typed,
                          int64_t result[3], char *message)
{
    const TorchTensor *const A = &product->A, *const B = &product->B, *const C = &product->C;
    if (!has_dtypes(product, typed)) {
        return TORCH_LEFT_DTYPE;
    }
    if (A->device != B->device || A->device == TORCH_OTHER_DEVICE ||
        (product->adds && A->device != C->device)) {
        return TORCH_LEFT_DEVICE;
    }
    if (!torch_check_shapes(product, result, message)) {
        return TORCH_LEFT_SHAPE;
    }
    const double flops = torch_flops(product, result);
    if (flops == 0.0) {
        return TORCH_LEFT_EMPTY;
    }
    if (flops < settings->min_flops) {
        return TORCH_LEFT_SMALL;
    }
    return A->dtype == SGEMM_KERNELS_FLOAT32 && precision_is_reduced(settings) ? TORCH_LEFT_TF32
                                                                               : TORCH_TAKEN;
}

TorchOutcome torch_outcome(int code, const char *message)
{
    if (code == STATUS_OK) {
        return TORCH_TAKEN;
    }
    pthread_mutex_lock(&lock);
    snprintf(last_failure, sizeof last_failure, "%s", message);
    pthread_mutex_unlock(&lock);
    return code == STATUS_UNSUPPORTED      ? TORCH_LEFT_UNSUPPORTED
           : code == TORCH_OPERAND_CHANGED ? TORCH_RAISED
                                           : TORCH_LEFT_FAILED;
}

/* ------------------------------------------------------------------ the kernels */

typedef struct {
    TorchOperator op;
    bool batched, has_out, on_cuda;
} Taken;

static TorchHandle handle_of(TorchValue value)
{
    return (TorchHandle)(uintptr_t)value;
}

/* Computes a call into *out, which is made if it is NULL. */
static TorchOutcome compute(const Taken *taken, TorchHandle a, TorchHandle b, TorchHandle *out,
                            char *message)
{
    const TorchSettings *const settings = torch_settings();
    TorchProduct product = {.batched = taken->batched, .alpha = 1.0f};
    if (!torch_read(a, false, &product.A) || !torch_read(b, false, &product.B)) {
        return TORCH_LEFT_LAYOUT;
    }
    int64_t result[3];
    TorchOutcome outcome = torch_decide(settings, &product, false, result, message);
    if (outcome == TORCH_LEFT_SHAPE) {
        return outcome;
    }
    if (!*out) {
        if (outcome == TORCH_LEFT_DTYPE || outcome == TORCH_LEFT_DEVICE) {
            result[0] = result[1] = result[2] = 0;
            if (product.A.dims == (taken->batched ? 3 : 2) && product.B.dims == product.A.dims) {
                result[0] = taken->batched ? product.A.sizes[0] : 1;
                result[1] = product.A.sizes[taken->batched];
                result[2] = product.B.sizes[taken->batched + 1];
            }
        }
        /* PyTorch's bmm takes the dtype of its second operand, and mm of its first. */
        const TorchHandle like = taken->batched ? b : a;
        int32_t dtype;
        *out = torch_abi.dtype(like, &dtype)
                   ? NULL
                   : torch_new(like, dtype, result, taken->batched, message);
        if (!*out) {
            return TORCH_LEFT_FAILED;
        }
    }
    if (outcome != TORCH_TAKEN) {
        return outcome;
    }
    if (!torch_read(*out, true, &product.out)) {
        return TORCH_LEFT_LAYOUT;
    }
    if (product.out.dtype != SGEMM_KERNELS_FLOAT32) {
        return TORCH_LEFT_DTYPE;
    }
    if (product.out.device != product.A.device) {
        return TORCH_LEFT_DEVICE;
    }
    if (!torch_has_shape(&product.out, result, taken->batched)) {
        return TORCH_LEFT_SHAPE;
    }
    void *stream;
    if (!torch_stream(product.A.device, &stream)) {
        return TORCH_LEFT_DEVICE;
    }
    return torch_outcome(torch_multiply(settings->variant, stream, &product, result, message),
                         message);
}

static bool is_empty(TorchHandle tensor)
{
    int64_t dims, *sizes;
    if (torch_abi.dims(tensor, &dims) || torch_abi.sizes(tensor, &sizes)) {
        return false;
    }
    bool empty = false;
    for (int64_t i = 0; i < dims; ++i) {
        empty = empty || sizes[i] == 0;
    }
    return empty;
}

/* Computes a call with PyTorch's kernel. False with the reason in `message`. */
static bool leave_to_pytorch(const Taken *taken, TorchOutcome outcome, TorchHandle a, TorchHandle b,
                             TorchHandle out, char *message)
{
    if (!out || outcome == TORCH_RAISED) {
        return false; /* the shapes do not fit, no memory, or changed operands */
    }
    if (!torch_abi.last_error) { /* PyTorch would write its message to stderr */
        int32_t of_a = 0, of_b = 0;
        torch_abi.dtype(a, &of_a);
        torch_abi.dtype(b, &of_b);
        /* PyTorch's bmm compares the dtypes only if it has something to add up. */
        if (of_a != of_b && !(taken->batched && (is_empty(a) || is_empty(b)))) {
            snprintf(message, TORCH_MESSAGE_BYTES,
                     "expected mat1 and mat2 to have the same dtype, but got: %s != %s",
                     torch_dtype_name(of_a), torch_dtype_name(of_b));
            return false;
        }
        if (outcome == TORCH_LEFT_DEVICE) {
            snprintf(message, TORCH_MESSAGE_BYTES, "Expected all tensors to be on the same device");
            return false;
        }
    }
    int32_t (*const mm)(TorchHandle, TorchHandle, TorchHandle) =
        taken->batched ? (taken->on_cuda ? torch_abi.cuda_bmm : torch_abi.cpu_bmm)
                       : (taken->on_cuda ? torch_abi.cuda_mm : torch_abi.cpu_mm);
    if (mm(out, a, b) == 0) {
        return true;
    }
    const char *const text = torch_abi.last_error ? torch_abi.last_error() : NULL;
    if (text || outcome != TORCH_LEFT_SHAPE) {
        snprintf(message, TORCH_MESSAGE_BYTES, "%s",
                 text ? text : "PyTorch's own kernel failed; stderr shows its message");
    }
    return false;
}

static void run(const Taken *taken, TorchValue *stack)
{
    const TorchHandle a = handle_of(stack[0]), b = handle_of(stack[1]);
    TorchHandle out = taken->has_out ? handle_of(stack[2]) : NULL;
    char message[TORCH_MESSAGE_BYTES] = "";
    const TorchOutcome outcome = compute(taken, a, b, &out, message);
    torch_count(taken->op, outcome);
    const bool raises =
        outcome != TORCH_TAKEN && !leave_to_pytorch(taken, outcome, a, b, out, message);
    torch_free(a);
    torch_free(b);
    if (raises) {
        torch_free(out);
        torch_abi.check(false, torch_operator_names[taken->op], __FILE__, __LINE__, message);
    }
    stack[0] = (TorchValue)(uintptr_t)out;
}

#define TAKEN(function, ...)                                                                       \
    static void function(TorchValue *stack, uint64_t arguments, uint64_t results)                  \
    {                                                                                              \
        static const Taken taken = {__VA_ARGS__};                                                  \
        (void)arguments;                                                                           \
        (void)results;                                                                             \
        run(&taken, stack);                                                                        \
    }

TAKEN(mm_cpu, TORCH_MM, false, false, false)
TAKEN(mm_out_cpu, TORCH_MM_OUT, false, true, false)
TAKEN(bmm_cpu, TORCH_BMM, true, false, false)
TAKEN(bmm_out_cpu, TORCH_BMM_OUT, true, true, false)
TAKEN(mm_cuda, TORCH_MM, false, false, true)
TAKEN(mm_out_cuda, TORCH_MM_OUT, false, true, true)
TAKEN(bmm_cuda, TORCH_BMM, true, false, true)
TAKEN(bmm_out_cuda, TORCH_BMM_OUT, true, true, true)

/* ------------------------------------------------------------------ on and off */

/* Settings are never freed, because a call in another thread may read them. Equal ones are kept
 * once. */
static const TorchSettings *kept(const TorchSettings *settings)
{
    static struct Kept {
        TorchSettings settings;
        struct Kept *next;
    } * all;
    for (struct Kept *one = all; one; one = one->next) {
        if (!strcmp(one->settings.variant, settings->variant) &&
            one->settings.min_flops == settings->min_flops &&
            one->settings.reduced == settings->reduced) {
            return &one->settings;
        }
    }
    struct Kept *const new = calloc(1, sizeof *new);
    if (!new) {
        return NULL;
    }
    new->settings = *settings;
    new->next = all;
    all = new;
    return &new->settings;
}

static void delete_libraries(void)
{
    for (int i = 0; i < 2; ++i) {
        if (libraries[i]) {
            torch_abi.delete_library(libraries[i]);
            libraries[i] = NULL;
        }
    }
}

static Status register_at(const char *key)
{
    static TorchKernel *const kernels[2][4] = {
        {mm_cpu, mm_out_cpu, bmm_cpu, bmm_out_cpu},
        {mm_cuda, mm_out_cuda, bmm_cuda, bmm_out_cuda},
    };
    const bool cuda = strcmp(key, "CPU") != 0;
    if (libraries[cuda]) {
        return status_ok();
    }
    if (cuda && !torch_abi.cuda_mm) {
        return status_error(STATUS_DEVICE, "this PyTorch was built without CUDA");
    }
    int32_t error = torch_abi.implement("aten", key, __FILE__, __LINE__, &libraries[cuda]);
    for (int i = TORCH_MM; !error && i <= TORCH_BMM_OUT; ++i) {
        error = torch_abi.add_kernel(libraries[cuda], torch_operator_names[i], kernels[cuda][i],
                                     TORCH_WRITTEN_FOR);
    }
    return error ? status_error(STATUS_UNSUPPORTED, "PyTorch did not register kernels for aten::mm")
                 : status_ok();
}

Status torch_override_dispatch(const char *key, const TorchSettings *settings)
{
    pthread_mutex_lock(&lock);
    const TorchSettings *const new = kept(settings);
    Status status = new ? status_ok() : status_error(STATUS_OUT_OF_MEMORY, "out of memory");
    if (new) {
        atomic_store(&current, new);
        status = register_at(key);
    }
    if (status.code != STATUS_OK) {
        delete_libraries();
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void torch_give_back(void)
{
    pthread_mutex_lock(&lock);
    delete_libraries();
    pthread_mutex_unlock(&lock);
}
