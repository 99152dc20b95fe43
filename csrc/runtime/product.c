#include "product.h"

#include <stdlib.h>

#include "batch.h"
#include "batch_pieces.h"
#include "catalog.h"
#include "multi_gpu.h"
#include "workers.h"

bool product_is_in_place(const Product *product)
{
    const Strided *const out = &product->out, *const C = &product->C;
    return C->data == out->data && C->row_bytes == out->row_bytes &&
           C->col_bytes == out->col_bytes && C->swapped == out->swapped &&
           C->batch_bytes == out->batch_bytes;
}

bool product_is_symmetric(const Product *product)
{
    const Strided B = strided_transposed(&product->A);
    return product->B.data == B.data && product->B.rows == B.rows && product->B.cols == B.cols &&
           product->B.row_bytes == B.row_bytes && product->B.col_bytes == B.col_bytes &&
           product->B.swapped == B.swapped && product->B.type == B.type &&
           product->taken[0] == product->taken[1] &&
           (product->count == 1 || product->B.batch_bytes == B.batch_bytes) &&
           !product->variant->spec.contiguous;
}

/* Computes a product, or the batch of its `count`. */
static Status multiply(const Product *product, const int *devices, int count)
{
    if (product->count > 1 && product->kind != DEVICE_CPU) {
        return batch_pieces_multiply(product, devices, count);
    }
    if (count > 1) {
        return multi_gpu_multiply(product, devices, count);
    }
    Product alone = *product;
    alone.device = devices[0];
    return device_kinds[alone.kind]->multiply(&alone);
}

static Status multiply_all(const Product *product, const Batch *batch, const int *devices,
                           int count)
{
    const int64_t products = batch_count(batch);
    Status status = status_ok();
    for (int64_t index = 0; index < products && status.code == STATUS_OK; ++index) {
        const Product one = batch_product(product, batch, index);
        status = index > 0 && interrupt_raised(&product->interrupt)
                     ? status_error(STATUS_INTERRUPTED, "interrupted")
                     : multiply(&one, devices, count);
    }
    return status;
}

/* Copies the results of a batch with contiguous results to out. */
static Status copy_all(const Product *to, const Batch *to_batch, const Product *from,
                       const Batch *from_batch)
{
    const int64_t products = batch_count(to_batch);
    Status status = status_ok();
    for (int64_t index = 0; index < products && status.code == STATUS_OK; ++index) {
        const Strided out = batch_product(to, to_batch, index).out,
                      result = batch_product(from, from_batch, index).out;
        status = workers_copy(&out, &result, &to->interrupt);
    }
    return status;
}

/* Computes the result in a separate buffer and then copies it to out. */
static Status multiply_in_separate_buffer(const Product *product, const Batch *batch,
                                          const int *devices, int count)
{
    Product separate = *product;
    separate.out_changed = NULL;
    Batch contiguous = *batch;
    const int64_t products = batch_count(batch);
    const int64_t rows = product->out.rows, cols = product->out.cols;
    int64_t bytes;
    const bool fits = !__builtin_mul_overflow(products, rows, &bytes) &&
                      !__builtin_mul_overflow(bytes, cols * (int64_t)sizeof(float), &bytes);
    void *const result = fits ? malloc((size_t)bytes) : NULL;
    if (!result) {
        return status_error(STATUS_OUT_OF_MEMORY,
                            "no host memory for the result, %lld matrices of %lld x %lld, before "
                            "it is copied to out",
                            (long long)products, (long long)rows, (long long)cols);
    }
    batch_add_contiguous(result, &separate, &contiguous);
    const Product written = separate;
    Batch simple = contiguous;
    batch_simplify(&separate, &simple);
    Status status = multiply_all(&separate, &simple, devices, count);
    if (status.code == STATUS_OK) {
        product_changes_out(product);
        status = copy_all(product, batch, &written, &contiguous);
    }
    free(result);
    return status;
}

bool product_takes_16bit(DeviceKind kind, int index)
{
    const Device *const device = device_kinds[kind];
    return device->runs_16bit ? device->runs_16bit(index)
                              : device_can_run(&variant_auto_16bit, kind, index).code == STATUS_OK;
}

Product product_typed(const Product *product, int device)
{
    Product typed = *product;
    typed.taken[0] = typed.taken[1] = ELEMENT_FLOAT32;
    const bool has_16bit = product->A.type != ELEMENT_FLOAT32 || product->B.type != ELEMENT_FLOAT32;
    if (has_16bit && product->variant == catalog_find("auto") &&
        product_takes_16bit(product->kind, device)) {
        typed.variant = &variant_auto_16bit;
        typed.taken[0] = product->A.type;
        typed.taken[1] = product->B.type;
    }
    return typed;
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

Status product_run(const Product *product, const Batch *batch, const int *devices, int count)
{
    Product read = product_as_read(product);
    read.count = 1;
    if (batch_must_wait(&read, batch)) {
        return multiply_in_separate_buffer(&read, batch, devices, count);
    }
    if (batch->axes == 0) {
        return multiply(&read, devices, count);
    }
    Batch simple = *batch;
    batch_simplify(&read, &simple);
    return multiply_all(&read, &simple, devices, count);
}
