#include "product.h"

#include <stdint.h>
#include <stdlib.h>

#include "workers.h"

/* A host matrix: the caller's memory, or a copy of it that is ours to free. */
typedef struct {
    Matrix matrix;
    float *owned;
} HostMatrix;

static Status allocate(const char *what, int64_t rows, int64_t cols, HostMatrix *host)
{
    const size_t most = PTRDIFF_MAX / sizeof(float);
    const bool fits = rows == 0 || cols == 0 || (size_t)rows <= most / (size_t)cols;
    const size_t bytes = (size_t)rows * (size_t)cols * sizeof(float);
    host->owned = fits ? malloc(bytes ? bytes : 1) : NULL;
    if (!host->owned) {
        return status_error(
            STATUS_OUT_OF_MEMORY, "no memory for a copy of %s, %lld x %lld float32 (%.3g GB)", what,
            (long long)rows, (long long)cols, (double)rows * (double)cols * sizeof(float) / 1e9);
    }
    host->matrix = (Matrix){host->owned, rows, cols, cols, 1};
    return status_ok();
}

/* The array as a matrix that a kernel can take: where it lies if possible, else packed by rows. */
static Status take(const char *what, const Strided *array, HostMatrix *host)
{
    if (strided_as_matrix(array, &host->matrix)) {
        return status_ok();
    }
    const Status status = allocate(what, array->rows, array->cols, host);
    if (status.code == STATUS_OK) {
        const Strided packed = strided_of_matrix(&host->matrix);
        strided_copy(&packed, array);
    }
    return status;
}

bool product_is_in_place(const Product *product)
{
    const Strided *const out = &product->out, *const C = &product->C;
    return C->data == out->data && C->row_bytes == out->row_bytes &&
           C->col_bytes == out->col_bytes && C->swapped == out->swapped;
}

/* The matrix that receives the result: out itself if a kernel can write it while it reads, else fresh
 * memory. */
static Status take_result(const Product *product, const HostMatrix *A, const HostMatrix *B,
                          HostMatrix *host)
{
    const Strided *const out = &product->out;
    const Strided a = strided_of_matrix(&A->matrix), b = strided_of_matrix(&B->matrix);
    const bool rows_in_order =
        out->rows <= 1 || out->row_bytes >= out->cols * (int64_t)sizeof(float);
    const bool direct = strided_as_matrix(out, &host->matrix) && host->matrix.col_stride == 1 &&
                        rows_in_order && !strided_may_overlap(out, &a) &&
                        !strided_may_overlap(out, &b) &&
                        (product->beta == 0.0f || product_is_in_place(product) ||
                         !strided_may_overlap(out, &product->C));
    return direct ? status_ok() : allocate("the result", out->rows, out->cols, host);
}

bool product_must_wait(const Product *product)
{
    const Strided *const out = &product->out;
    return strided_may_overlap(out, &product->A) || strided_may_overlap(out, &product->B) ||
           (product->beta != 0.0f && !product_is_in_place(product) &&
            strided_may_overlap(out, &product->C));
}

static Status run_in_device_memory(const Product *product, const Device *device)
{
    if (!product_must_wait(product)) {
        return device->multiply(product);
    }
    HostMatrix result = {0};
    Status status = allocate("the result", product->out.rows, product->out.cols, &result);
    if (status.code == STATUS_OK) {
        Product apart = *product;
        apart.out = strided_of_matrix(&result.matrix);
        status = device->multiply(&apart);
    }
    if (status.code == STATUS_OK) {
        const Strided from = strided_of_matrix(&result.matrix);
        workers_copy(&product->out, &from);
    }
    free(result.owned);
    return status;
}

static Status run_in_host_memory(const Product *product)
{
    HostMatrix A = {0}, B = {0}, C = {0};
    Status status = take("A", &product->A, &A);
    if (status.code == STATUS_OK) {
        status = take("B", &product->B, &B);
    }
    if (status.code == STATUS_OK) {
        status = take_result(product, &A, &B, &C);
    }
    if (status.code == STATUS_OK) {
        const Sgemm problem = {A.matrix, B.matrix, C.matrix, product->alpha, product->beta};
        const Strided result = strided_of_matrix(&C.matrix);
        if (product->beta != 0.0f && product->C.data != result.data) {
            strided_copy(&result, &product->C);
        }
        const Launch where = {.device = product->device, .interrupt = &product->interrupt};
        status = product->variant->launch[product->kind](&problem, &where);
        if (status.code == STATUS_OK && C.owned) {
            strided_copy(&product->out, &result);
        }
    }
    free(A.owned);
    free(B.owned);
    free(C.owned);
    return status;
}

Status product_run(const Product *product)
{
    const Device *const device = device_kinds[product->kind];
    Product read = *product;
    if (read.alpha == 0.0f || read.A.cols == 0) {
        /* Nothing of A and B is read: what is left of the sum is no terms, times nothing. */
        read.A.cols = read.B.rows = 0;
        read.alpha = 0.0f;
    }
    return device->uses_host_memory ? run_in_host_memory(&read)
                                    : run_in_device_memory(&read, device);
}
