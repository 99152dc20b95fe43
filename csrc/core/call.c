#include "call.h"

#include <fenv.h>
#include <stdio.h>

#include "batch.h"
#include "catalog.h"
#include "product.h"

enum { ON_CPU = -1 };

/* The handle that names the legacy default stream explicitly, in CUDA and in HIP. */
static void *const legacy_stream = (void *)1;

static Strided strided_of(const SgemmMatrix *matrix)
{
    return (Strided){.data = matrix->data,
                     .rows = matrix->rows,
                     .cols = matrix->cols,
                     .row_bytes = matrix->row_bytes,
                     .col_bytes = matrix->col_bytes};
}

static Status check_matrix(const char *name, const SgemmMatrix *matrix, int64_t rows, int64_t cols)
{
    const long long found_rows = matrix->rows, found_cols = matrix->cols;
    if (found_rows < 0 || found_cols < 0) {
        return status_error(STATUS_INVALID, "%s has the negative shape (%lld, %lld)", name,
                            found_rows, found_cols);
    }
    if (found_rows != rows || found_cols != cols) {
        return status_error(STATUS_INVALID, "%s is (%lld, %lld) but (%lld, %lld) is needed", name,
                            found_rows, found_cols, (long long)rows, (long long)cols);
    }
    return matrix->data || rows == 0 || cols == 0
               ? status_ok()
               : status_error(STATUS_INVALID, "%s has the address 0", name);
}

/* Checks what product_run requires of its caller. */
static Status check(const SgemmMatrix *A, const SgemmMatrix *B, float beta, const SgemmMatrix *C,
                    const SgemmMatrix *out)
{
    Status status = check_matrix("A", A, A->rows, A->cols);
    status = status.code == STATUS_OK ? check_matrix("B", B, A->cols, B->cols) : status;
    status = status.code == STATUS_OK ? check_matrix("out", out, A->rows, B->cols) : status;
    if (status.code == STATUS_OK && beta != 0.0f) {
        status = C ? check_matrix("C", C, A->rows, B->cols)
                   : status_error(STATUS_INVALID, "beta is %g but C is missing", beta);
    }
    if (status.code == STATUS_OK) {
        const Strided result = strided_of(out);
        if (strided_overlaps_itself(&result)) {
            status = status_error(STATUS_INVALID, "elements of out share memory");
        }
    }
    return status;
}

/* Checks that the device exists and can run the product's variant. */
static Status check_device(const Product *product)
{
    int count;
    Status status = product->kind == DEVICE_CUDA ? cuda_count(&count) : status_ok();
    if (product->kind == DEVICE_CUDA && status.code == STATUS_OK) {
        status = product->device < count
                     ? device_kinds[DEVICE_CUDA]->usable(product->device)
                     : status_error(STATUS_DEVICE,
                                    "there is no device '" GPU_KIND ":%d' (visible GPUs: %d)",
                                    product->device, count);
    }
    if (status.code == STATUS_OK) {
        status = device_can_run(product->variant, product->kind, product->device);
    }
#ifdef SGEMM_CUDA
    if (status.code == STATUS_OK && variant_is_library(product->variant) && !cublas_is_open()) {
        status = status_error(STATUS_UNSUPPORTED,
                              "variant '%s' needs the " GPU_LIBRARY " library, which this process "
                              "has not loaded: call sgemm_kernels.run('%s', A, B) once before",
                              product->variant->name, product->variant->name);
    }
#endif
    return status;
}

static Status call(const char *variant, int device, void *stream, float alpha, const SgemmMatrix *A,
                   const SgemmMatrix *B, float beta, const SgemmMatrix *C, const SgemmMatrix *out)
{
    Product product = {.variant = catalog_find(variant),
                       .kind = device == ON_CPU ? DEVICE_CPU : DEVICE_CUDA,
                       .device = device == ON_CPU ? 0 : device,
                       .alpha = alpha,
                       .beta = beta,
                       .count = 1};
    if (!product.variant) {
        return status_error(STATUS_INVALID, "there is no variant '%s'", variant);
    }
    if (device < ON_CPU) {
        return status_error(STATUS_INVALID, "device is %d: pass a GPU's index, or -1 for the CPU",
                            device);
    }
    Status status = check(A, B, beta, C, out);
    status = status.code == STATUS_OK ? check_device(&product) : status;
    if (status.code != STATUS_OK || out->rows == 0 || out->cols == 0) {
        return status;
    }
    product.A = strided_of(A);
    product.B = strided_of(B);
    product.C = C ? strided_of(C) : (Strided){0};
    product.out = strided_of(out);
    const Batch none = {.axes = 0};
    return product.kind == DEVICE_CPU
               ? product_run(&product, &none, &product.device, 1)
               : device_kinds[DEVICE_CUDA]->queue(&product, &none, stream ? stream : legacy_stream);
}

int sgemm_call(const char *variant, int device, void *stream, float alpha, const SgemmMatrix *A,
               const SgemmMatrix *B, float beta, const SgemmMatrix *C, const SgemmMatrix *out,
               char *message, size_t message_size)
{
    /* Some libraries make floating-point operations flush to zero or trap. */
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    const Status status = call(variant, device, stream, alpha, A, B, beta, C, out);
    fesetenv(&environment);
    if (status.code == STATUS_OK) {
        return 0;
    }
    snprintf(message, message_size, "%s", status.message);
    return (int)status.code;
}
