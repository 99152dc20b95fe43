/* Batches: the leading axes of operands, with the rules of numpy.matmul. */
#ifndef SGEMM_BATCH_H
#define SGEMM_BATCH_H

#include "product.h"
#include "view.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BATCH_AXES = VIEW_AXES - 2 };
enum { OF_A, OF_B, OF_C, OF_OUT, OPERANDS };

/* A product for each index (i, j, ...): its operands begin i * bytes[operand][0] +
 * j * bytes[operand][1] + ... after those of a Product. */
typedef struct Batch {
    int axes;
    int64_t length[BATCH_AXES];
    int64_t bytes[OPERANDS][BATCH_AXES]; /* 0: the operand is broadcast along the axis */
    bool A_is_vector, B_is_vector;       /* the result lacks the axis of rows, or of columns */
} Batch;

/* Stores the operands in the product, and the batch of their leading axes. A vector A is a row, and
 * a vector B is a column. False if the leading axes cannot be broadcast. The caller has checked
 * that both have axes and that K agrees. */
bool batch_of(const View *A, const View *B, Product *product, Batch *batch);

/* Stores the result's shape and returns its number of axes. */
int batch_shape(const Product *product, const Batch *batch, int64_t shape[VIEW_AXES]);

/* Stores C (OF_C) or out (OF_OUT) in the product and the batch. False if its shape is not the
 * result's; the leading axes of C may also be broadcast to it. */
bool batch_add(const View *array, int operand, Product *product, Batch *batch);

/* Stores an `out` with the result's shape, in contiguous memory. */
void batch_add_contiguous(void *memory, Product *product, Batch *batch);

/* The number of products, or INT64_MAX if that is less. */
int64_t batch_count(const Batch *batch);

/* Merges axes. A shared operand makes one product of many: the rows of all A, if all have the same
 * B. The longest axis left becomes product->count, which devices compute at once; the batch keeps
 * the others. Call it once, when all operands are stored and the batch is not empty. */
void batch_simplify(Product *product, Batch *batch);

/* The product at an index, 0 <= index < batch_count(batch). */
Product batch_product(const Product *product, const Batch *batch, int64_t index);

/* Whether out must not be written before all operands are read: it overlaps A, B, or C in another
 * position. May return true where it does not. */
bool batch_must_wait(const Product *product, const Batch *batch);

#ifdef __cplusplus
}
#endif
#endif
