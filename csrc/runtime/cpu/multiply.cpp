/* One product on the CPU device. A kernel reads and writes the caller's arrays if their strides
 * allow it. Otherwise it gets copies, and its result is copied to `out` at the end. */
#include "multiply.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>

#include "../../base/addend.h"
#include "../../emulator/grid.h"
#include "../../emulator/tensor_core_model.h"
#include "../host_matrix.h"
#include "../workers.h"

namespace {

/* A kernel's matrix: the caller's memory, or a copy. */
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

    /* Memory for a copy of `count` matrices, laid out like a GPU's copy of the array with elements
     * of that type. */
    Status allocate(const char *what, const Strided *array, ElementType type, bool column_major,
                    bool contiguous, int64_t count)
    {
        owned = true;
        const int64_t rows = array->rows, cols = array->cols;
        const int64_t lines = column_major ? cols : rows, length = column_major ? rows : cols;
        const int64_t ld = contiguous ? length : leading_dimension_in(type, count, length);
        const Status status = host_matrix_allocate(what, lines * count, ld, &matrix);
        matrix = {matrix.data,
                  rows,
                  cols,
                  column_major ? 1 : ld,
                  column_major ? ld : 1,
                  count > 1 ? lines * ld : 0};
        return status;
    }

    Matrix matrix = {};
    bool owned = false;
};

/* With `copied`, a kernel gets a copy of every array, as on a GPU. An operand that the whole batch
 * shares is copied once. `type` is that of the elements which the kernel takes. */
Status take(const char *what, const Strided *array, ElementType type, bool copied,
            const Product *product, Operand *operand)
{
    const bool contiguous = product->variant->spec.contiguous;
    if (!copied && strided_as_typed(array, type, &operand->matrix) &&
        (!contiguous || matrix_is_contiguous(&operand->matrix))) {
        return status_ok();
    }
    const int64_t count = array->batch_bytes == 0 ? 1 : product->count;
    const Status status = operand->allocate(
        what, array, type, !contiguous && is_column_major(array), contiguous, count);
    if (status.code != STATUS_OK) {
        return status;
    }
    const Strided packed = strided_of_typed(&operand->matrix, type);
    return workers_copy_batch(&packed, array, count, &product->interrupt);
}

/* The matrix that the kernel writes. If beta is not 0, it initially holds C, unless *added is set
 * to C. */
Status take_result(const Product *product, bool copied, Operand *result, Matrix *added)
{
    const Strided *const out = &product->out;
    const bool rows_in_order =
        out->rows <= 1 || out->row_bytes >= out->cols * static_cast<int64_t>(sizeof(float));
    const bool contiguous = product->variant->spec.contiguous;
    if (copied || !strided_as_matrix(out, &result->matrix) || result->matrix.col_stride != 1 ||
        !rows_in_order || (contiguous && !matrix_is_contiguous(&result->matrix))) {
        const Status status =
            result->allocate("the result", out, ELEMENT_FLOAT32, false, contiguous, product->count);
        if (status.code != STATUS_OK) {
            return status;
        }
    }
    if (!result->owned) {
        product_changes_out(product);
    }
    if (product->beta != 0.0f && (result->owned || !product_is_in_place(product)) &&
        !(product->variant->spec.reads_addend && added && strided_as_addend(&product->C, added))) {
        const Strided begun = strided_of_matrix(&result->matrix);
        return workers_copy_batch(&begun, &product->C, product->count, &product->interrupt);
    }
    return status_ok();
}

/* What copies C to the result. */
struct AddendCopy {
    const Product *product;
    const Matrix *result;
};

Status copy_addend(void *context, int64_t first, int64_t count)
{
    const auto *const copy = static_cast<const AddendCopy *>(context);
    const Strided begun = strided_of_matrix(copy->result);
    const Strided to = strided_in_batch(&begun, first),
                  from = strided_in_batch(&copy->product->C, first);
    return workers_copy_batch(&to, &from, count, &copy->product->interrupt);
}

/* True if starting threads would take longer than the product. The calling thread then computes it
 * and cannot be interrupted. Even whole tiles with the largest K here take only milliseconds. */
bool is_brief(const Product *product)
{
    constexpr int64_t most_rows = 128, most_depth = 1024, most_products = 1 << 16;
    const int64_t rows = product->out.rows, cols = product->out.cols, depth = product->A.cols;
    const int64_t count = product->variant->batch > 1 ? product->count : 1; /* of a launch */
    return rows <= most_rows && cols <= most_rows && depth <= most_depth &&
           count <= most_products && rows * cols * depth * count <= most_products;
}

/* A product's matrices as a kernel reads and writes them. */
struct Operands {
    Operand A, B, C;
};

Status take_all(const Product *product, bool copied, Operands *operands, Sgemm *problem,
                Matrix *added)
{
    Status status = variant_fits(&product->variant->spec, product->out.rows, product->out.cols,
                                 product->A.cols);
    if (status.code == STATUS_OK) {
        status = take("A", &product->A, product->taken[0], copied, product, &operands->A);
    }
    if (status.code == STATUS_OK && operands->A.owned && product_is_symmetric(product)) {
        operands->B.matrix = matrix_transposed(&operands->A.matrix);
    } else if (status.code == STATUS_OK) {
        status = take("B", &product->B, product->taken[1], copied, product, &operands->B);
    }
    if (status.code == STATUS_OK) {
        status = take_result(product, copied, &operands->C, added);
    }
    *problem = {operands->A.matrix, operands->B.matrix, operands->C.matrix,
                product->alpha,     product->beta,      product->count};
    return status;
}

/* Copies the result to `out` if the kernel did not write it there. */
Status hand_over(const Product *product, const Operands &operands)
{
    if (!operands.C.owned) {
        return status_ok();
    }
    product_changes_out(product);
    const Strided result = strided_of_matrix(&operands.C.matrix);
    return workers_copy_batch(&product->out, &result, product->count, &product->interrupt);
}

Status find_like_gpu(bool *like_gpu)
{
    int multiprocessors;
    const Status status = modelled_multiprocessors(&multiprocessors);
    *like_gpu = multiprocessors > 0;
    return status;
}

/* Kernels choose code paths by alignment. To reproduce a GPU's results, the operands need the
 * alignment of the GPU's copies. False for arrays that are in the memory of the modelled GPU. */
bool gpu_copies()
{
    const char *const text = getenv("SGEMM_KERNELS_CPU_COPIES");
    return !text || strcmp(text, "0") != 0;
}

} // namespace

bool cpu_runs_16bit(int)
{
    const TensorCoreModel model = cpu_tensor_cores();
    bool like_gpu;
    return find_like_gpu(&like_gpu).code == STATUS_OK && like_gpu && model.major == 9 &&
           model.minor == 0;
}

Status cpu_multiply(const Product *given)
{
    const Product typed = product_typed(given, given->device), *const product = &typed;
    Operands operands;
    Sgemm problem;
    Matrix added = {};
    bool like_gpu;
    Status status = find_like_gpu(&like_gpu);
    if (status.code == STATUS_OK) {
        status = take_all(product, like_gpu && gpu_copies(), &operands, &problem, &added);
    }
    if (status.code == STATUS_OK) {
        AddendCopy copy = {product, &problem.C};
        const Addend addend = {added, 0, copy_addend, &copy};
        const Launch where = {product->device,
                              nullptr,
                              &product->interrupt,
                              {},
                              is_brief(product),
                              added.data ? &addend : nullptr,
                              {product->taken[0], product->taken[1]}};
        int64_t launched = 0;
        status = variant_launch(product->variant, DEVICE_CPU, &problem, &where, &launched);
    }
    return status.code == STATUS_OK ? hand_over(product, operands) : status;
}

/* The products of a variant that plans for them all. */
static Status multiply_together(const Product *products, int64_t count)
{
    auto *const operands = new (std::nothrow) Operands[static_cast<size_t>(count)];
    auto *const problems = new (std::nothrow) Sgemm[static_cast<size_t>(count)];
    Status status =
        operands && problems
            ? status_ok()
            : status_error(STATUS_OUT_OF_MEMORY, "no host memory for a list of %lld products",
                           static_cast<long long>(count));
    for (int64_t n = 0; n < count && status.code == STATUS_OK; ++n) {
        status = take_all(&products[n], gpu_copies(), &operands[n], &problems[n], nullptr);
    }
    if (status.code == STATUS_OK) {
        const Launch where = {products->device, nullptr, &products->interrupt, {}, false};
        status = products->variant->launch_many[DEVICE_CPU](problems, count, &where);
    }
    for (int64_t n = 0; n < count && status.code == STATUS_OK; ++n) {
        status = hand_over(&products[n], operands[n]);
    }
    delete[] problems;
    delete[] operands;
    return status;
}

static Status multiply_singly(const Product *products, int64_t count)
{
    Status status = status_ok();
    for (int64_t n = 0; n < count && status.code == STATUS_OK; ++n) {
        status = n > 0 && interrupt_raised(&products[n].interrupt)
                     ? status_error(STATUS_INTERRUPTED, "interrupted")
                     : cpu_multiply(&products[n]);
    }
    return status;
}

/* Those with operands of 16 bits, which `auto` takes as they are, have a launch each. */
static bool has_own_launch(const Product &product)
{
    return product_typed(&product, product.device).variant != product.variant;
}

Status cpu_multiply_many(const Product *products, int64_t count)
{
    bool like_gpu;
    Status status = find_like_gpu(&like_gpu);
    if (status.code != STATUS_OK || !like_gpu || !products->variant->launch_many[DEVICE_CPU]) {
        return status.code == STATUS_OK ? multiply_singly(products, count) : status;
    }
    auto *const sorted = new (std::nothrow) Product[static_cast<size_t>(count)];
    if (!sorted) {
        return status_error(STATUS_OUT_OF_MEMORY, "no host memory for a list of %lld products",
                            static_cast<long long>(count));
    }
    Product *const end = std::copy(products, products + count, sorted);
    Product *const single = std::stable_partition(
        sorted, end, [](const Product &product) { return !has_own_launch(product); });
    if (single > sorted) {
        status = multiply_together(sorted, single - sorted);
    }
    status = status.code == STATUS_OK ? multiply_singly(single, end - single) : status;
    delete[] sorted;
    return status;
}
