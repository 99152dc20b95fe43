#include "batch.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMENT = sizeof(float) };

/* The matrix that the last two axes make, and where the axes before them end. A vector is a row or
 * a column. */
static Strided matrix_of(const View *array, bool has_rows, bool has_cols, int *leading)
{
    int axis = array->axes;
    Strided matrix = {
        .data = array->data, .rows = 1, .cols = 1, .swapped = array->swapped, .type = array->type};
    if (has_cols) {
        matrix.cols = array->shape[--axis];
        matrix.col_bytes = array->bytes[axis];
    }
    if (has_rows) {
        matrix.rows = array->shape[--axis];
        matrix.row_bytes = array->bytes[axis];
    }
    *leading = axis;
    return matrix;
}

/* Stores the bytes of the array's leading axes, which end with the batch's last axis. False if an
 * axis has another length than the batch's, and not length 1. */
static bool broadcast(const View *array, int leading, int operand, Batch *batch)
{
    const int missing = batch->axes - leading;
    if (missing < 0) {
        return false;
    }
    for (int axis = 0; axis < batch->axes; ++axis) {
        const int64_t length = axis < missing ? 1 : array->shape[axis - missing];
        if (length != batch->length[axis] && length != 1) {
            return false;
        }
        batch->bytes[operand][axis] = length == 1 ? 0 : array->bytes[axis - missing];
    }
    return true;
}

bool batch_of(const View *A, const View *B, Product *product, Batch *batch)
{
    int leading_A, leading_B;
    batch->A_is_vector = A->axes == 1;
    batch->B_is_vector = B->axes == 1;
    product->A = matrix_of(A, A->axes > 1, true, &leading_A);
    product->B = matrix_of(B, true, B->axes > 1, &leading_B);
    batch->axes = leading_A > leading_B ? leading_A : leading_B;
    for (int axis = 0; axis < batch->axes; ++axis) {
        const int in_A = axis - batch->axes + leading_A, in_B = axis - batch->axes + leading_B;
        const int64_t of_A = in_A < 0 ? 1 : A->shape[in_A], of_B = in_B < 0 ? 1 : B->shape[in_B];
        batch->length[axis] = of_A == 1 ? of_B : of_A;
    }
    return broadcast(A, leading_A, OF_A, batch) && broadcast(B, leading_B, OF_B, batch);
}

int batch_shape(const Product *product, const Batch *batch, int64_t shape[VIEW_AXES])
{
    int axes = batch->axes;
    memcpy(shape, batch->length, (size_t)axes * sizeof *shape);
    if (!batch->A_is_vector) {
        shape[axes++] = product->A.rows;
    }
    if (!batch->B_is_vector) {
        shape[axes++] = product->B.cols;
    }
    return axes;
}

static Strided *operand_of(Product *product, int operand)
{
    Strided *const operands[OPERANDS] = {&product->A, &product->B, &product->C, &product->out};
    return operands[operand];
}

bool batch_add(const View *array, int operand, Product *product, Batch *batch)
{
    const bool has_rows = !batch->A_is_vector, has_cols = !batch->B_is_vector;
    if (array->axes < has_rows + has_cols ||
        (operand == OF_OUT && array->axes != batch->axes + has_rows + has_cols)) {
        return false;
    }
    int leading;
    const Strided matrix = matrix_of(array, has_rows, has_cols, &leading);
    if (matrix.rows != product->A.rows || matrix.cols != product->B.cols ||
        !broadcast(array, leading, operand, batch)) {
        return false;
    }
    if (operand == OF_OUT &&
        memcmp(array->shape, batch->length, (size_t)leading * sizeof *array->shape) != 0) {
        return false;
    }
    *operand_of(product, operand) = matrix;
    return true;
}

void batch_add_contiguous(void *memory, Product *product, Batch *batch)
{
    const int64_t rows = product->A.rows, cols = product->B.cols;
    product->out = (Strided){.data = memory,
                             .rows = rows,
                             .cols = cols,
                             .row_bytes = cols * ELEMENT,
                             .col_bytes = ELEMENT};
    int64_t bytes = rows * cols * ELEMENT;
    for (int axis = batch->axes; axis-- > 0;) {
        batch->bytes[OF_OUT][axis] = bytes;
        bytes *= batch->length[axis];
    }
}

int64_t batch_count(const Batch *batch)
{
    int64_t count = 1;
    bool overflows = false;
    for (int axis = 0; axis < batch->axes; ++axis) {
        if (batch->length[axis] == 0) {
            return 0;
        }
        overflows = overflows || __builtin_mul_overflow(count, batch->length[axis], &count);
    }
    return overflows ? INT64_MAX : count;
}

/* ------------------------------------------------------------------ fewer axes */

static void remove_axis(Batch *batch, int axis)
{
    const size_t after = (size_t)(batch->axes - axis - 1) * sizeof(int64_t);
    memmove(&batch->length[axis], &batch->length[axis + 1], after);
    for (int operand = 0; operand < OPERANDS; ++operand) {
        int64_t *const bytes = batch->bytes[operand];
        memmove(&bytes[axis], &bytes[axis + 1], after);
    }
    --batch->axes;
}

/* Whether the axis continues the rows of the operand's matrix. */
static bool continues_rows(const Product *product, const Batch *batch, int operand, int axis)
{
    const Strided *const matrix = operand_of((Product *)product, operand);
    const int64_t bytes = batch->bytes[operand][axis];
    return matrix->rows == 1 || bytes == matrix->rows * matrix->row_bytes;
}

static bool continues_cols(const Product *product, const Batch *batch, int operand, int axis)
{
    const Strided *const matrix = operand_of((Product *)product, operand);
    const int64_t bytes = batch->bytes[operand][axis];
    return matrix->cols == 1 || bytes == matrix->cols * matrix->col_bytes;
}

/* Makes the axis a part of the rows of A, C and out, or of the columns of B, C and out, if the
 * other operand is the same along it. */
static bool fold_axis(Product *product, Batch *batch, int axis)
{
    const bool has_C = product->beta != 0.0f;
    const int64_t length = batch->length[axis];
    if (batch->bytes[OF_B][axis] == 0 && continues_rows(product, batch, OF_A, axis) &&
        continues_rows(product, batch, OF_OUT, axis) &&
        (!has_C || continues_rows(product, batch, OF_C, axis))) {
        for (int operand = OF_A; operand < OPERANDS; operand += 2 - (operand == OF_C)) {
            Strided *const matrix = operand_of(product, operand);
            if (matrix->rows == 1) {
                matrix->row_bytes = batch->bytes[operand][axis];
            }
            matrix->rows *= length;
        }
        return true;
    }
    if (!product->variant->spec.rows_alone && batch->bytes[OF_A][axis] == 0 &&
        continues_cols(product, batch, OF_B, axis) &&
        continues_cols(product, batch, OF_OUT, axis) &&
        (!has_C || continues_cols(product, batch, OF_C, axis))) {
        for (int operand = OF_B; operand < OPERANDS; ++operand) {
            Strided *const matrix = operand_of(product, operand);
            if (matrix->cols == 1) {
                matrix->col_bytes = batch->bytes[operand][axis];
            }
            matrix->cols *= length;
        }
        return true;
    }
    return false;
}

/* Whether two neighbouring axes are one for every operand. */
static bool merges(const Batch *batch, int axis)
{
    bool does = true;
    for (int operand = 0; operand < OPERANDS; ++operand) {
        const int64_t *const bytes = batch->bytes[operand];
        does = does && bytes[axis] == batch->length[axis + 1] * bytes[axis + 1];
    }
    return does;
}

void batch_simplify(Product *product, Batch *batch)
{
    if (product->beta == 0.0f) { /* C is not read, so its axes need not merge */
        memcpy(batch->bytes[OF_C], batch->bytes[OF_OUT], sizeof batch->bytes[OF_C]);
    }
    for (int axis = batch->axes; axis-- > 0;) {
        if (axis + 1 < batch->axes && merges(batch, axis)) {
            batch->length[axis + 1] *= batch->length[axis];
            remove_axis(batch, axis);
        } else if (batch->length[axis] == 1) {
            remove_axis(batch, axis);
        }
    }
    for (int axis = batch->axes; axis-- > 0;) {
        if (fold_axis(product, batch, axis)) {
            remove_axis(batch, axis);
        }
    }
    product->count = 1;
    int longest = 0;
    for (int axis = 1; axis < batch->axes; ++axis) {
        longest = batch->length[axis] > batch->length[longest] ? axis : longest;
    }
    if (batch->axes > 0) {
        product->count = batch->length[longest];
        for (int operand = 0; operand < OPERANDS; ++operand) {
            operand_of(product, operand)->batch_bytes = batch->bytes[operand][longest];
        }
        remove_axis(batch, longest);
    }
}

Product batch_product(const Product *product, const Batch *batch, int64_t index)
{
    Product at = *product;
    for (int axis = batch->axes; axis-- > 0; index /= batch->length[axis]) {
        const int64_t step = index % batch->length[axis];
        for (int operand = 0; operand < OPERANDS; ++operand) {
            Strided *const matrix = operand_of(&at, operand);
            matrix->data = matrix->data ? matrix->data + step * batch->bytes[operand][axis] : NULL;
        }
    }
    return at;
}

/* ------------------------------------------------------------------ overlaps */

/* Of an operand that is not empty. */
static Extent extent_of(const Product *product, const Batch *batch, int operand)
{
    const Strided *const matrix = operand_of((Product *)product, operand);
    Extent extent = strided_extent(matrix);
    extent_repeat(&extent, product->count, matrix->batch_bytes);
    for (int axis = 0; axis < batch->axes; ++axis) {
        extent_repeat(&extent, batch->length[axis], batch->bytes[operand][axis]);
    }
    return extent;
}

static bool out_overlaps(const Product *product, const Batch *batch, int operand)
{
    const Strided *const matrix = operand_of((Product *)product, operand);
    if (matrix->rows == 0 || matrix->cols == 0) {
        return false;
    }
    const Extent out = extent_of(product, batch, OF_OUT),
                 other = extent_of(product, batch, operand);
    return out.first < other.end && other.first < out.end;
}

static bool is_in_place(const Product *product, const Batch *batch)
{
    bool in_place = product_is_in_place(product);
    for (int axis = 0; axis < batch->axes; ++axis) {
        in_place = in_place && batch->bytes[OF_C][axis] == batch->bytes[OF_OUT][axis];
    }
    return in_place;
}

bool batch_must_wait(const Product *product, const Batch *batch)
{
    return out_overlaps(product, batch, OF_A) || out_overlaps(product, batch, OF_B) ||
           (product->beta != 0.0f && !is_in_place(product, batch) &&
            out_overlaps(product, batch, OF_C));
}
