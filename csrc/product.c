#include "product.h"

#include <stdint.h>
#include <stdlib.h>

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

/* Copy engines move lines that follow one another. */
static bool lines_in_order(const Matrix *matrix)
{
    return matrix->col_stride == 1 ? matrix->rows <= 1 || matrix->row_stride >= matrix->cols
                                   : matrix->cols <= 1 || matrix->col_stride >= matrix->rows;
}

/* The array as a matrix that the device can take: where it lies if possible, else packed by
 * rows. */
static Status take(const char *what, const Strided *array, const Device *device, bool by_rows,
                   HostMatrix *host)
{
    if (strided_as_matrix(array, &host->matrix) &&
        (device->uses_host_memory || lines_in_order(&host->matrix)) &&
        (!by_rows || host->matrix.col_stride == 1)) {
        return status_ok();
    }
    const Status status = allocate(what, array->rows, array->cols, host);
    if (status.code == STATUS_OK) {
        const Strided packed = strided_of_matrix(&host->matrix);
        strided_copy(&packed, array);
    }
    return status;
}

/* The matrix that receives the result: out itself if the device can write it, else fresh memory. */
static Status take_result(const Product *product, const Device *device, const HostMatrix *A,
                          const HostMatrix *B, HostMatrix *host)
{
    const Strided *const out = &product->out;
    bool direct = strided_as_matrix(out, &host->matrix) && host->matrix.col_stride == 1 &&
                  lines_in_order(&host->matrix);
    if (direct && device->uses_host_memory) {
        const Strided a = strided_of_matrix(&A->matrix), b = strided_of_matrix(&B->matrix);
        const bool in_place =
            product->C.data == out->data && product->C.row_bytes == out->row_bytes &&
            product->C.col_bytes == out->col_bytes && product->C.swapped == out->swapped;
        direct = !strided_may_overlap(out, &a) && !strided_may_overlap(out, &b) &&
                 (product->beta == 0.0f || in_place || !strided_may_overlap(out, &product->C));
    }
    return direct ? status_ok() : allocate("the result", out->rows, out->cols, host);
}

static Status run_in_host_memory(const Product *product, const Sgemm *problem)
{
    const Strided result = strided_of_matrix(&problem->C);
    if (problem->beta != 0.0f && product->C.data != result.data) {
        strided_copy(&result, &product->C);
    }
    const Launch where = {.device = product->device, .interrupt = &product->interrupt};
    return product->variant->launch[product->kind](problem, &where);
}

/* Device memory for an operand, filled from the host. */
static Status send(const Device *device, Session *session, const Matrix *host, Matrix *there)
{
    Status status = device->allocate(session, host->rows, host->cols, host->col_stride != 1, there);
    if (status.code == STATUS_OK) {
        status = device->upload(session, there, host);
    }
    return status;
}

static Status run_in_device_memory(const Product *product, const Device *device, Session *session,
                                   const Sgemm *problem)
{
    Sgemm there = *problem;
    there.A.data = there.B.data = there.C.data = NULL;
    HostMatrix C = {0};

    Status status = send(device, session, &problem->A, &there.A);
    if (status.code == STATUS_OK) {
        status = send(device, session, &problem->B, &there.B);
    }
    if (status.code == STATUS_OK) {
        status = device->allocate(session, problem->C.rows, problem->C.cols, false, &there.C);
    }
    if (status.code == STATUS_OK && problem->beta != 0.0f) {
        status = take("C", &product->C, device, true, &C);
        if (status.code == STATUS_OK) {
            status = device->upload(session, &there.C, &C.matrix);
        }
    }
    if (status.code == STATUS_OK) {
        const Launch where = {.device = product->device, .stream = session->stream};
        status = product->variant->launch[product->kind](&there, &where);
    }
    if (status.code == STATUS_OK) {
        status = device->download(session, &problem->C, &there.C);
    }
    /* Waits after a failure too: what was queued may still use the memory. */
    const Status finished = device->finish(session);
    status = status.code == STATUS_OK ? finished : status;
    free(C.owned);
    device->release(session, &there.C);
    device->release(session, &there.B);
    device->release(session, &there.A);
    return status;
}

Status product_run(const Product *product)
{
    const Device *const device = device_kinds[product->kind];
    HostMatrix A = {0}, B = {0}, C = {0};
    Sgemm problem = {.alpha = product->alpha, .beta = product->beta};

    Strided a = product->A, b = product->B;
    if (product->alpha == 0.0f || a.cols == 0) {
        /* Nothing of A and B is read: what is left of the sum is no terms, times nothing. */
        a.cols = b.rows = 0;
        problem.alpha = 0.0f;
    }
    Status status = take("A", &a, device, false, &A);
    if (status.code == STATUS_OK) {
        status = take("B", &b, device, false, &B);
    }
    if (status.code == STATUS_OK) {
        status = take_result(product, device, &A, &B, &C);
    }
    if (status.code == STATUS_OK) {
        problem.A = A.matrix;
        problem.B = B.matrix;
        problem.C = C.matrix;
        if (device->uses_host_memory) {
            status = run_in_host_memory(product, &problem);
        } else {
            Session session;
            status = device->open(product->device, &session);
            if (status.code == STATUS_OK) {
                status = run_in_device_memory(product, device, &session, &problem);
                device->close(&session);
            }
        }
    }
    if (status.code == STATUS_OK && C.owned) {
        const Strided result = strided_of_matrix(&C.matrix);
        strided_copy(&product->out, &result);
    }
    free(A.owned);
    free(B.owned);
    free(C.owned);
    return status;
}
