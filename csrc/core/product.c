#include "product.h"

#include <stdlib.h>

#include "host_matrix.h"
#include "multi_gpu.h"
#include "workers.h"

bool product_is_in_place(const Product *product)
{
    const Strided *const out = &product->out, *const C = &product->C;
    return C->data == out->data && C->row_bytes == out->row_bytes &&
           C->col_bytes == out->col_bytes && C->swapped == out->swapped;
}

bool product_must_wait(const Product *product)
{
    const Strided *const out = &product->out;
    return strided_may_overlap(out, &product->A) || strided_may_overlap(out, &product->B) ||
           (product->beta != 0.0f && !product_is_in_place(product) &&
            strided_may_overlap(out, &product->C));
}

static Status multiply(const Product *product, const int *devices, int count)
{
    if (count > 1) {
        return multi_gpu_multiply(product, devices, count);
    }
    Product alone = *product;
    alone.device = devices[0];
    return device_kinds[alone.kind]->multiply(&alone);
}

/* Computes the result in a separate buffer and then copies it to out. */
static Status multiply_in_separate_buffer(const Product *product, const int *devices, int count)
{
    Product separate = *product;
    separate.out_changed = NULL;
    Matrix result;
    Status status =
        host_matrix_allocate("the result", product->out.rows, product->out.cols, &result);
    if (status.code == STATUS_OK) {
        separate.out = strided_of_matrix(&result);
        status = multiply(&separate, devices, count);
    }
    if (status.code == STATUS_OK) {
        product_changes_out(product);
        status = workers_copy(&product->out, &separate.out, &product->interrupt);
    }
    free(result.data);
    return status;
}

Product product_as_read(const Product *product)
{
    Product read = *product;
    if (read.alpha == 0.0f || read.A.cols == 0) {
        /* The product is zero: make it an empty sum. */
        read.A.cols = read.B.rows = 0;
        read.alpha = 0.0f;
    }
    return read;
}

Status product_run(const Product *product, const int *devices, int count)
{
    const Product read = product_as_read(product);
    return product_must_wait(&read) ? multiply_in_separate_buffer(&read, devices, count)
                                    : multiply(&read, devices, count);
}
