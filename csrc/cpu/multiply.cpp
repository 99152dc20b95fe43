/* One product on the CPU device. Kernels take the caller's arrays where they lie; what they cannot
 * take is packed first, and a result that they cannot write is put in place afterwards. */
#include "multiply.h"

#include <stdlib.h>

#include "../core/host_matrix.h"
#include "../core/workers.h"

namespace {

/* A matrix that a kernel can take: the caller's memory, or memory of its own. */
class Operand {
  public:
    Operand() = default;
    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;
    ~Operand()
    {
        if (owned) {
            free(matrix.data);
        }
    }

    Status allocate(const char *what, const Strided *array)
    {
        owned = true;
        return host_matrix_allocate(what, array->rows, array->cols, &matrix);
    }

    Matrix matrix = {};
    bool owned = false;
};

Status take(const char *what, const Strided *array, const Interrupt *interrupt, Operand *operand)
{
    if (strided_as_matrix(array, &operand->matrix)) {
        return status_ok();
    }
    const Status status = operand->allocate(what, array);
    if (status.code != STATUS_OK) {
        return status;
    }
    const Strided packed = strided_of_matrix(&operand->matrix);
    return workers_copy(&packed, array, interrupt);
}

/* The matrix that the kernel writes, which holds C's elements if it reads them. */
Status take_result(const Product *product, Operand *result)
{
    const Strided *const out = &product->out;
    const bool rows_in_order =
        out->rows <= 1 || out->row_bytes >= out->cols * static_cast<int64_t>(sizeof(float));
    if (!strided_as_matrix(out, &result->matrix) || result->matrix.col_stride != 1 ||
        !rows_in_order) {
        const Status status = result->allocate("the result", out);
        if (status.code != STATUS_OK) {
            return status;
        }
    }
    if (product->beta != 0.0f && (result->owned || !product_is_in_place(product))) {
        const Strided begun = strided_of_matrix(&result->matrix);
        return workers_copy(&begun, &product->C, &product->interrupt);
    }
    return status_ok();
}

/* Whether to start threads would take longer than to do without, and nobody waits for an interrupt:
 * kernels compute whole tiles, of at most 128 x 128, which take milliseconds at that depth. */
bool is_brief(const Product *product)
{
    constexpr int64_t most_rows = 128, most_depth = 1024, most_products = 1 << 16;
    const int64_t rows = product->out.rows, cols = product->out.cols, depth = product->A.cols;
    return rows <= most_rows && cols <= most_rows && depth <= most_depth &&
           rows * cols * depth <= most_products;
}

} // namespace

Status cpu_multiply(const Product *product)
{
    Operand A, B, C;
    Status status = take("A", &product->A, &product->interrupt, &A);
    if (status.code == STATUS_OK) {
        status = take("B", &product->B, &product->interrupt, &B);
    }
    if (status.code == STATUS_OK) {
        status = take_result(product, &C);
    }
    if (status.code == STATUS_OK) {
        const Sgemm problem = {A.matrix, B.matrix, C.matrix, product->alpha, product->beta};
        const Launch where = {product->device, nullptr, &product->interrupt, nullptr,
                              is_brief(product)};
        status = product->variant->launch[DEVICE_CPU](&problem, &where);
    }
    if (status.code == STATUS_OK && C.owned) {
        const Strided result = strided_of_matrix(&C.matrix);
        status = workers_copy(&product->out, &result, &product->interrupt);
    }
    return status;
}
