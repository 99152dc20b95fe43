#define _GNU_SOURCE /* sigset_t */
#include <fenv.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../base/undisturbed.h"
#include "../../runtime/batch.h"
#include "../../runtime/catalog.h"
#include "../../runtime/kept_proofs.h"
#include "../../runtime/many.h"
#include "../../runtime/overlap.h"
#include "../../runtime/pinned.h"
#include "../../runtime/product.h"
#include "sgemm_kernels.h"

_Static_assert(SGEMM_KERNELS_OK == (int)STATUS_OK && SGEMM_KERNELS_DEVICE == (int)STATUS_DEVICE &&
                   SGEMM_KERNELS_OUT_OF_MEMORY == (int)STATUS_OUT_OF_MEMORY &&
                   SGEMM_KERNELS_UNSUPPORTED == (int)STATUS_UNSUPPORTED &&
                   SGEMM_KERNELS_INVALID == (int)STATUS_INVALID,
               "the codes of the C interface are those of status.h");
_Static_assert(SGEMM_KERNELS_FLOAT32 == (int)ELEMENT_FLOAT32 &&
                   SGEMM_KERNELS_FLOAT16 == (int)ELEMENT_FLOAT16 &&
                   SGEMM_KERNELS_BFLOAT16 == (int)ELEMENT_BFLOAT16,
               "the types of the C interface are those of sgemm.h");

/* The handle that names the legacy default stream explicitly, in CUDA and in HIP. */
static void *const legacy_stream = (void *)1;

/* What a call sets in the calling thread and restores. Some libraries make floating-point
 * operations flush to zero or trap. A signal handler could leave the call by longjmp while it holds
 * locks, or while other threads use this one's stack. */
typedef struct {
    fenv_t environment;
    Undisturbed undisturbed;
    bool out_changed;
} Call;

static void call_begin(Call *call)
{
    call->out_changed = false;
    undisturbed_begin(&call->undisturbed);
    fegetenv(&call->environment);
    fesetenv(FE_DFL_ENV);
}

static void call_end(const Call *call)
{
    fesetenv(&call->environment);
    undisturbed_end(&call->undisturbed);
}

static int report(const Status *result, bool changed, sgemm_kernels_status *status)
{
    if (status) {
        status->code = (int)result->code;
        status->out_changed = changed;
        snprintf(status->message, sizeof status->message, "%s", result->message);
    }
    return (int)result->code;
}

/* ------------------------------------------------------------------ devices and variants */

/* The GPU's index in a name such as "cuda:1", -1 in "cuda", or -2 if it is another name. */
static int index_in(const char *name)
{
    const size_t length = strlen(GPU_KIND);
    const char *const after = strncmp(name, GPU_KIND, length) == 0 ? name + length : "?";
    if (*after == '\0') {
        return -1;
    }
    const size_t digits = *after == ':' ? strspn(after + 1, "0123456789") : 0;
    return digits >= 1 && digits <= 6 && after[1 + digits] == '\0' ? atoi(after + 1) : -2;
}

/* Checks that the GPU exists and that this build can use it. */
static Status check_gpu(int index)
{
    kept_proofs_read_once(); /* before auto chooses a kernel */
    int count;
    const Status status = cuda_count(&count);
    if (status.code != STATUS_OK) {
        return status;
    }
    return index < count ? device_kinds[DEVICE_CUDA]->usable(index)
                         : status_error(STATUS_DEVICE,
                                        "there is no device '" GPU_KIND ":%d' (visible GPUs: %d)",
                                        index, count);
}

static Status find_device(const char *name, int *device)
{
    Status why = status_ok();
    const int index = name ? index_in(name) : -1;
    if (!device) {
        why = status_error(STATUS_INVALID, "device is NULL: pass the address of an int");
    } else if (name && strcmp(name, "cpu") == 0) {
        *device = SGEMM_KERNELS_CPU;
    } else if (index == -1) {
        const int first = first_usable_gpu(&why);
        *device = first >= 0 ? first : *device;
    } else if (index >= 0) {
        why = check_gpu(index);
        *device = why.code == STATUS_OK ? index : *device;
    } else {
        why = status_error(STATUS_INVALID,
                           "there is no device called '%s': pass 'cpu', '" GPU_KIND
                           "' or '" GPU_KIND ":<index>'",
                           name);
    }
    return why;
}

int sgemm_kernels_find_device(const char *name, int *device, sgemm_kernels_status *status)
{
    Call call;
    call_begin(&call);
    const Status found = find_device(name, device);
    call_end(&call);
    return report(&found, false, status);
}

const char *sgemm_kernels_variant(int index)
{
    for (int known = 0; known < index; ++known) {
        if (!catalog[known]) {
            return NULL;
        }
    }
    return index >= 0 && catalog[index] ? catalog[index]->name : NULL;
}

/* ------------------------------------------------------------------ products */

enum { ADDRESS_BITS = 56 }; /* a process has at most 2^56 bytes */

/* A stride in bytes. check_span accepts one that overflows only along an axis with one element,
 * where it is never used. */
static int64_t bytes_of(int64_t stride, int dtype)
{
    int64_t bytes;
    return __builtin_mul_overflow(stride, element_bytes((ElementType)dtype), &bytes) ? 0 : bytes;
}

static Strided strided_of(const sgemm_kernels_operand *matrix)
{
    return (Strided){.data = (char *)matrix->data,
                     .rows = matrix->rows,
                     .cols = matrix->cols,
                     .row_bytes = bytes_of(matrix->row_stride, matrix->dtype),
                     .col_bytes = bytes_of(matrix->col_stride, matrix->dtype),
                     .type = (ElementType)matrix->dtype};
}

/* The elements that `length` steps of a stride span. */
__extension__ typedef unsigned __int128 Wide;

static Wide span(int64_t length, int64_t stride)
{
    return (Wide)(length - 1) * (stride < 0 ? -(uint64_t)stride : (uint64_t)stride);
}

/* Checks that the matrices of a batch, which are not empty, fit in an address space. */
static Status check_span(const char *name, const sgemm_kernels_operand *matrix, int64_t count,
                         int64_t stride)
{
    const Wide elements = span(count, stride) + span(matrix->rows, matrix->row_stride) +
                          span(matrix->cols, matrix->col_stride) + 1;
    const int64_t size = element_bytes((ElementType)matrix->dtype);
    if (elements <= ((Wide)1 << ADDRESS_BITS) / (Wide)size) {
        return status_ok();
    }
    char of_batch[60] = "";
    if (count > 1) {
        snprintf(of_batch, sizeof of_batch, ", and the batch's stride %lld", (long long)stride);
    }
    return status_error(STATUS_INVALID,
                        "%s is (%lld, %lld) with the strides (%lld, %lld)%s, more than any "
                        "memory has: strides count elements, not bytes",
                        name, (long long)matrix->rows, (long long)matrix->cols,
                        (long long)matrix->row_stride, (long long)matrix->col_stride, of_batch);
}

/* Four matrices in the order of batch.h, and the strides of a batch. */
typedef struct {
    int64_t count;
    bool given[OPERANDS]; /* the caller passed its address */
    sgemm_kernels_operand matrix[OPERANDS];
    int64_t stride[OPERANDS];
} Operands;

/* The caller's arrays of matrices, or one matrix each. */
typedef struct {
    const sgemm_kernels_operand *typed[2]; /* A and B of any type */
    const sgemm_kernels_matrix *floats[OPERANDS];
} Lists;

/* Without C if beta is 0: nothing may be read through the pointer then. */
static Lists lists_to_read(const Lists *lists, float beta)
{
    Lists read = *lists;
    read.floats[OF_C] = beta == 0.0f ? NULL : read.floats[OF_C];
    return read;
}

static bool are_given(const Lists *lists, int operand)
{
    return lists->floats[operand] || (operand <= OF_B && lists->typed[operand]);
}

/* Number n of the operands. */
static Operands operands_at(const Lists *lists, int64_t n)
{
    Operands one = {.count = 1};
    for (int operand = 0; operand < OPERANDS; ++operand) {
        const sgemm_kernels_matrix *const floats = lists->floats[operand];
        one.given[operand] = are_given(lists, operand);
        if (floats) {
            one.matrix[operand] = (sgemm_kernels_operand){
                floats[n].data,       floats[n].rows,       floats[n].cols,
                floats[n].row_stride, floats[n].col_stride, SGEMM_KERNELS_FLOAT32};
        } else if (one.given[operand]) {
            one.matrix[operand] = lists->typed[operand][n];
        }
    }
    return one;
}

static Status check_dtype(const char *name, int dtype)
{
    return dtype >= SGEMM_KERNELS_FLOAT32 && dtype <= SGEMM_KERNELS_BFLOAT16
               ? status_ok()
               : status_error(STATUS_INVALID,
                              "%s has the dtype %d: pass SGEMM_KERNELS_FLOAT32 (0), "
                              "SGEMM_KERNELS_FLOAT16 (1) or SGEMM_KERNELS_BFLOAT16 (2)",
                              name, dtype);
}

/* Checks the matrix of an operand in a batch. */
static Status check_matrix(const Operands *operands, int operand, int64_t rows, int64_t cols)
{
    static const char *const names[OPERANDS] = {
        [OF_A] = "A", [OF_B] = "B", [OF_C] = "C", [OF_OUT] = "out"};
    const char *const name = names[operand];
    const sgemm_kernels_operand *const matrix = &operands->matrix[operand];
    const Status typed = check_dtype(name, matrix->dtype);
    if (typed.code != STATUS_OK) {
        return typed;
    }
    const long long found_rows = matrix->rows, found_cols = matrix->cols;
    if (found_rows < 0 || found_cols < 0) {
        return status_error(STATUS_INVALID, "%s has the negative shape (%lld, %lld)", name,
                            found_rows, found_cols);
    }
    if (found_rows != rows || found_cols != cols) {
        return status_error(STATUS_INVALID, "%s is (%lld, %lld) but (%lld, %lld) is needed", name,
                            found_rows, found_cols, (long long)rows, (long long)cols);
    }
    if (rows == 0 || cols == 0) {
        return status_ok();
    }
    return matrix->data ? check_span(name, matrix, operands->count, operands->stride[operand])
                        : status_error(STATUS_INVALID, "%s has the address 0", name);
}

static Overlap overlap_of_out(const sgemm_kernels_operand *out, int64_t count, int64_t stride)
{
    const Strided one = strided_of(out);
    const View view = {.data = one.data,
                       .axes = 3,
                       .shape = {count, one.rows, one.cols},
                       .bytes = {bytes_of(stride, out->dtype), one.row_bytes, one.col_bytes}};
    return overlap_within(&view);
}

/* Checks the pointers that must not be NULL. C may be NULL if beta is 0, and all matrices if there
 * is no product. */
static Status check_given(const char *variant, const sgemm_kernels_place *place, int64_t count,
                          const Lists *lists)
{
    const struct {
        const char *name;
        bool given;
    } all[] = {{"variant", variant != NULL},
               {"place", place != NULL},
               {"A", are_given(lists, OF_A)},
               {"B", are_given(lists, OF_B)},
               {"out", are_given(lists, OF_OUT)}};
    const size_t needed = count == 0 ? 2 : sizeof all / sizeof *all;
    for (size_t index = 0; index < needed; ++index) {
        if (!all[index].given) {
            return status_error(STATUS_INVALID, "%s is NULL", all[index].name);
        }
    }
    return status_ok();
}

/* Checks what product_run requires of its caller. */
static Status check(const Operands *operands, float beta)
{
    const sgemm_kernels_operand *const A = &operands->matrix[OF_A],
                                       *const B = &operands->matrix[OF_B],
                                       *const out = &operands->matrix[OF_OUT];
    if (operands->count <= 0) {
        return operands->count == 0
                   ? status_ok()
                   : status_error(STATUS_INVALID, "the batch has the negative count %lld",
                                  (long long)operands->count);
    }
    Status status = check_matrix(operands, OF_A, A->rows, A->cols);
    status = status.code == STATUS_OK ? check_matrix(operands, OF_B, A->cols, B->cols) : status;
    status = status.code == STATUS_OK ? check_matrix(operands, OF_OUT, A->rows, B->cols) : status;
    if (status.code == STATUS_OK && beta != 0.0f) {
        status = operands->given[OF_C]
                     ? check_matrix(operands, OF_C, A->rows, B->cols)
                     : status_error(STATUS_INVALID, "beta is %g but C is missing", beta);
    }
    const Overlap overlap = status.code == STATUS_OK
                                ? overlap_of_out(out, operands->count, operands->stride[OF_OUT])
                                : OVERLAP_NONE;
    return overlap == OVERLAP_NONE ? status
                                   : status_error(STATUS_INVALID, "elements of out %sshare memory",
                                                  overlap == OVERLAP_UNKNOWN ? "may " : "");
}

static Status check_place(const sgemm_kernels_place *place)
{
    if (place->device < SGEMM_KERNELS_CPU) {
        return status_error(STATUS_INVALID, "device is %d: pass a GPU's index, or -1 for the CPU",
                            place->device);
    }
    if (place->memory != SGEMM_KERNELS_HOST_MEMORY && place->memory != SGEMM_KERNELS_GPU_MEMORY) {
        return status_error(STATUS_INVALID, "memory is %d: pass 0 for the host's, or 1 for a GPU's",
                            place->memory);
    }
    if (place->device == SGEMM_KERNELS_CPU) {
        return place->memory == SGEMM_KERNELS_HOST_MEMORY
                   ? status_ok()
                   : status_error(STATUS_INVALID,
                                  "the matrices are in GPU memory but the device is the CPU: pass "
                                  "the index of their GPU");
    }
    return check_gpu(place->device);
}

static Status check_variant(const Product *product)
{
    const Status status = device_can_run(product->variant, product->kind, product->device);
#ifdef SGEMM_CUDA
    if (status.code == STATUS_OK && variant_is_library(product->variant) && !cublas_is_open()) {
        return status_error(STATUS_UNSUPPORTED,
                            "variant '%s' needs the " GPU_LIBRARY " library, which this process "
                            "has not loaded. Python programs load it by calling "
                            "sgemm_kernels.run('%s', A, B) once before; other programs cannot use "
                            "this variant",
                            product->variant->name, product->variant->name);
    }
#endif
    return status;
}

static Strided transposed(const sgemm_kernels_operand *matrix)
{
    const Strided array = strided_of(matrix);
    return strided_transposed(&array);
}

/* Describes the products to core. A column-major `out` receives the transposed product, since
 * kernels write row-major results: out.T = alpha * B.T @ A.T + beta * C.T. */
static void set_operands(Product *product, Batch *batch, const Operands *operands)
{
    const sgemm_kernels_operand *const out = &operands->matrix[OF_OUT];
    const bool transposes = out->row_stride == 1 && out->col_stride >= out->rows && out->cols > 1 &&
                            !product->variant->spec.rows_alone;
    Strided *const places[OPERANDS] = {&product->A, &product->B, &product->C, &product->out};
    batch->axes = operands->count > 1;
    batch->length[0] = operands->count;
    for (int operand = 0; operand < OPERANDS; ++operand) {
        const int from = transposes && operand <= OF_B ? OF_A + OF_B - operand : operand;
        const sgemm_kernels_operand *const matrix = &operands->matrix[from];
        if (operand != OF_C || product->beta != 0.0f) {
            *places[operand] = transposes ? transposed(matrix) : strided_of(matrix);
        }
        batch->bytes[operand][0] = bytes_of(operands->stride[from], matrix->dtype);
    }
}

/* Checks the arguments that all products share, and stores them in *model. */
static Status begin(const char *variant, const sgemm_kernels_place *place, float alpha, float beta,
                    Call *call, Product *model)
{
    *model = (Product){.variant = catalog_find(variant),
                       .kind = place->device == SGEMM_KERNELS_CPU ? DEVICE_CPU : DEVICE_CUDA,
                       .device = place->device == SGEMM_KERNELS_CPU ? 0 : place->device,
                       .alpha = alpha,
                       .beta = beta,
                       .count = 1,
                       .interrupt = {undisturbed_lets_defaults_act, &call->undisturbed},
                       .out_changed = &call->out_changed};
    return model->variant ? status_ok()
                          : status_error(STATUS_INVALID, "there is no variant '%s'", variant);
}

static Status check_device(const sgemm_kernels_place *place, const Product *product)
{
    const Status status = check_place(place);
    return status.code == STATUS_OK ? check_variant(product) : status;
}

static void *stream_of(const sgemm_kernels_place *place)
{
    return place->stream ? place->stream : legacy_stream;
}

static Status multiply(const char *variant, const sgemm_kernels_place *place, float alpha,
                       float beta, const Lists *lists, int64_t count,
                       const int64_t stride[OPERANDS], Call *call)
{
    Product product;
    Status status = check_given(variant, place, count, lists);
    if (status.code != STATUS_OK) {
        return status;
    }
    Operands operands = {.count = 0};
    if (count != 0) {
        operands = operands_at(lists, 0);
    }
    operands.count = count;
    memcpy(operands.stride, stride, sizeof operands.stride);
    status = begin(variant, place, alpha, beta, call, &product);
    status = status.code == STATUS_OK ? check(&operands, beta) : status;
    status = status.code == STATUS_OK ? check_device(place, &product) : status;
    const sgemm_kernels_operand *const out = &operands.matrix[OF_OUT];
    if (status.code != STATUS_OK || count == 0 || out->rows == 0 || out->cols == 0) {
        return status;
    }
    Batch batch;
    set_operands(&product, &batch, &operands);
    return place->memory == SGEMM_KERNELS_HOST_MEMORY
               ? product_run(&product, &batch, &product.device, 1)
               : device_kinds[DEVICE_CUDA]->queue(&product, &batch, stream_of(place));
}

static int multiply_reported(const char *variant, const sgemm_kernels_place *place, float alpha,
                             float beta, const Lists *lists, int64_t count,
                             const int64_t stride[OPERANDS], sgemm_kernels_status *status)
{
    const Lists read = lists_to_read(lists, beta);
    Call call;
    call_begin(&call);
    const Status result = multiply(variant, place, alpha, beta, &read, count, stride, &call);
    call_end(&call);
    return report(&result, call.out_changed, status);
}

int sgemm_kernels_multiply_batched(const char *variant, const sgemm_kernels_place *place,
                                   int64_t count, float alpha, const sgemm_kernels_matrix *A,
                                   int64_t stride_A, const sgemm_kernels_matrix *B,
                                   int64_t stride_B, float beta, const sgemm_kernels_matrix *C,
                                   int64_t stride_C, const sgemm_kernels_matrix *out,
                                   int64_t stride_out, sgemm_kernels_status *status)
{
    const Lists lists = {.floats = {[OF_A] = A, [OF_B] = B, [OF_C] = C, [OF_OUT] = out}};
    const int64_t stride[] = {
        [OF_A] = stride_A, [OF_B] = stride_B, [OF_C] = stride_C, [OF_OUT] = stride_out};
    return multiply_reported(variant, place, alpha, beta, &lists, count, stride, status);
}

int sgemm_kernels_multiply_typed(const char *variant, const sgemm_kernels_place *place,
                                 int64_t count, float alpha, const sgemm_kernels_operand *A,
                                 int64_t stride_A, const sgemm_kernels_operand *B, int64_t stride_B,
                                 float beta, const sgemm_kernels_matrix *C, int64_t stride_C,
                                 const sgemm_kernels_matrix *out, int64_t stride_out,
                                 sgemm_kernels_status *status)
{
    const Lists lists = {{A, B}, {[OF_C] = C, [OF_OUT] = out}};
    const int64_t stride[] = {
        [OF_A] = stride_A, [OF_B] = stride_B, [OF_C] = stride_C, [OF_OUT] = stride_out};
    return multiply_reported(variant, place, alpha, beta, &lists, count, stride, status);
}

int sgemm_kernels_multiply(const char *variant, const sgemm_kernels_place *place, float alpha,
                           const sgemm_kernels_matrix *A, const sgemm_kernels_matrix *B, float beta,
                           const sgemm_kernels_matrix *C, const sgemm_kernels_matrix *out,
                           sgemm_kernels_status *status)
{
    return sgemm_kernels_multiply_batched(variant, place, 1, alpha, A, 0, B, 0, beta, C, 0, out, 0,
                                          status);
}

/* ------------------------------------------------------------------ many products */

/* Checks all products and stores them. */
static Status take_products(const Lists *lists, int64_t count, const Product *model,
                            Product *products)
{
    for (int64_t n = 0; n < count; ++n) {
        const Operands one = operands_at(lists, n);
        const Status status = check(&one, model->beta);
        if (status.code != STATUS_OK) {
            return status_error(status.code, "product %lld: %s", (long long)n, status.message);
        }
        Batch none;
        products[n] = *model;
        set_operands(&products[n], &none, &one);
    }
    return many_check_outs(products, count);
}

static Status multiply_many(const char *variant, const sgemm_kernels_place *place, float alpha,
                            float beta, const Lists *lists, int64_t count, Call *call)
{
    Product model;
    Status status = check_given(variant, place, count, lists);
    status = status.code == STATUS_OK ? begin(variant, place, alpha, beta, call, &model) : status;
    status = status.code == STATUS_OK ? check_device(place, &model) : status;
    if (status.code != STATUS_OK || count == 0) {
        return status;
    }
    if (count < 0) {
        return status_error(STATUS_INVALID, "the list has the negative count %lld",
                            (long long)count);
    }
    Product *const products = calloc((size_t)count, sizeof *products);
    if (!products) {
        return status_error(STATUS_OUT_OF_MEMORY, "no host memory for a list of %lld products",
                            (long long)count);
    }
    status = take_products(lists, count, &model, products);
    if (status.code == STATUS_OK) {
        status = place->memory == SGEMM_KERNELS_HOST_MEMORY
                     ? many_run(products, count, &model.device, 1)
                     : device_kinds[DEVICE_CUDA]->queue_many(products, count, stream_of(place));
    }
    free(products);
    return status;
}

static int many_reported(const char *variant, const sgemm_kernels_place *place, float alpha,
                         float beta, const Lists *lists, int64_t count,
                         sgemm_kernels_status *status)
{
    const Lists read = lists_to_read(lists, beta);
    Call call;
    call_begin(&call);
    const Status result = multiply_many(variant, place, alpha, beta, &read, count, &call);
    call_end(&call);
    return report(&result, call.out_changed, status);
}

int sgemm_kernels_multiply_many(const char *variant, const sgemm_kernels_place *place,
                                int64_t count, float alpha, const sgemm_kernels_matrix *A,
                                const sgemm_kernels_matrix *B, float beta,
                                const sgemm_kernels_matrix *C, const sgemm_kernels_matrix *out,
                                sgemm_kernels_status *status)
{
    const Lists lists = {.floats = {[OF_A] = A, [OF_B] = B, [OF_C] = C, [OF_OUT] = out}};
    return many_reported(variant, place, alpha, beta, &lists, count, status);
}

int sgemm_kernels_multiply_many_typed(const char *variant, const sgemm_kernels_place *place,
                                      int64_t count, float alpha, const sgemm_kernels_operand *A,
                                      const sgemm_kernels_operand *B, float beta,
                                      const sgemm_kernels_matrix *C,
                                      const sgemm_kernels_matrix *out, sgemm_kernels_status *status)
{
    const Lists lists = {{A, B}, {[OF_C] = C, [OF_OUT] = out}};
    return many_reported(variant, place, alpha, beta, &lists, count, status);
}

/* ------------------------------------------------------------------ pinned memory */

/* Precedes the memory that the caller gets. */
typedef union {
    PinnedBlock *block; /* NULL: ordinary memory */
    char padding[64];
} Header;

static void *allocate(int device, size_t bytes)
{
    if (bytes > PTRDIFF_MAX) {
        return NULL;
    }
    const size_t whole = (sizeof(Header) + bytes + 63) / 64 * 64;
    const bool on_gpu = device >= 0 && check_gpu(device).code == STATUS_OK;
    PinnedBlock *const block =
        on_gpu ? pinned_alloc(device_kinds[DEVICE_CUDA], device, whole) : NULL;
    Header *const header = block ? pinned_memory(block) : aligned_alloc(64, whole);
    if (!header) {
        return NULL;
    }
    header->block = block;
    return header + 1;
}

void *sgemm_kernels_allocate(int device, size_t bytes)
{
    Call call;
    call_begin(&call);
    void *const memory = allocate(device, bytes);
    call_end(&call);
    return memory;
}

void sgemm_kernels_free(void *memory)
{
    Header *const header = memory ? (Header *)memory - 1 : NULL;
    Call call;
    call_begin(&call);
    if (header && header->block) {
        pinned_free(header->block);
    } else {
        free(header);
    }
    call_end(&call);
}
