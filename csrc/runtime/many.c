#include "many.h"

#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "host_matrix.h"
#include "overlap.h"
#include "workers.h"

enum { ELEMENT = sizeof(float) };

/* ------------------------------------------------------------------ overlaps */

static bool is_empty(const Strided *array)
{
    return array->rows == 0 || array->cols == 0;
}

/* The memory of an `out`. */
typedef struct {
    Extent extent;
    uintptr_t most_end; /* of this one and all before it in the list */
    int64_t product;
} Out;

static int by_first(const void *a, const void *b)
{
    const uintptr_t one = ((const Out *)a)->extent.first, other = ((const Out *)b)->extent.first;
    return (one > other) - (one < other);
}

/* Lists the products' outs by their first byte. */
static Status list_outs(const Product *products, int64_t count, Out **outs, int64_t *listed)
{
    *outs = malloc((size_t)(count + !count) * sizeof **outs);
    *listed = 0;
    if (!*outs) {
        return status_error(STATUS_OUT_OF_MEMORY, "no host memory for a list of %lld products",
                            (long long)count);
    }
    for (int64_t n = 0; n < count; ++n) {
        const Strided *const out = &products[n].out;
        if (out->data && !is_empty(out)) {
            (*outs)[(*listed)++] = (Out){strided_extent(out), 0, n};
        }
    }
    qsort(*outs, (size_t)*listed, sizeof **outs, by_first);
    uintptr_t most = 0;
    for (int64_t i = 0; i < *listed; ++i) {
        most = (*outs)[i].extent.end > most ? (*outs)[i].extent.end : most;
        (*outs)[i].most_end = most;
    }
    return status_ok();
}

/* How many of the outs begin before an address. */
static int64_t begin_before(const Out *outs, int64_t count, uintptr_t address)
{
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        low = outs[middle].extent.first < address ? middle + 1 : low;
        high = outs[middle].extent.first < address ? high : middle;
    }
    return low;
}

Status many_check_outs(const Product *products, int64_t count)
{
    Out *outs;
    int64_t listed;
    Status status = list_outs(products, count, &outs, &listed);
    for (int64_t i = 0; i < listed && status.code == STATUS_OK; ++i) {
        const Extent own = outs[i].extent;
        for (int64_t j = i; j-- > 0 && outs[j].most_end > own.first;) {
            const Strided *const a = &products[outs[j].product].out, *const b =
                                                                         &products[outs[i].product]
                                                                              .out;
            if (outs[j].extent.end > own.first && overlap_between(a, b) != OVERLAP_NONE) {
                const int64_t one = outs[i].product, other = outs[j].product;
                status = status_error(
                    STATUS_INVALID,
                    "out[%lld] and out[%lld] may share memory: pass arrays that do not, such as "
                    "new ones or rows or columns of one array",
                    (long long)(one < other ? one : other), (long long)(one < other ? other : one));
                break;
            }
        }
    }
    free(outs);
    return status;
}

Status many_find_waiting(const Product *products, int64_t count, bool *waits)
{
    Out *outs;
    int64_t listed;
    const Status status = list_outs(products, count, &outs, &listed);
    memset(waits, 0, (size_t)count * sizeof *waits);
    for (int64_t n = 0; n < count; ++n) {
        const Product *const p = &products[n];
        const Strided *const operands[] = {&p->A, &p->B, p->beta != 0.0f ? &p->C : NULL};
        for (size_t index = 0; index < 3 && listed > 0; ++index) {
            const Strided *const operand = operands[index];
            if (!operand || is_empty(operand)) {
                continue;
            }
            const Extent read = strided_extent(operand);
            for (int64_t i = begin_before(outs, listed, read.end);
                 i-- > 0 && outs[i].most_end > read.first;) {
                const int64_t writer = outs[i].product;
                const bool in_place = operand == &p->C && writer == n && product_is_in_place(p);
                if (outs[i].extent.end > read.first && !in_place &&
                    overlap_between(&products[writer].out, operand) != OVERLAP_NONE) {
                    waits[writer] = true;
                }
            }
        }
    }
    free(outs);
    return status;
}

/* ------------------------------------------------------------------ in host memory */

/* Computes all products. None waits. */
static Status multiply_all(const Product *products, int64_t count, const int *devices,
                           int device_count)
{
    const Device *const device = device_kinds[products->kind];
    if (device->multiply_many) {
        return device->multiply_many(products, count);
    }
    const Batch none = {.axes = 0};
    Status status = status_ok();
    for (int64_t n = 0; n < count && status.code == STATUS_OK; ++n) {
        status = n > 0 && interrupt_raised(&products[n].interrupt)
                     ? status_error(STATUS_INTERRUPTED, "interrupted")
                     : product_run(&products[n], &none, devices, device_count);
    }
    return status;
}

/* Memory for the result of a product that waits. */
static Status take_separate(const Product *product, Strided *separate)
{
    Matrix memory;
    const Strided *const out = &product->out;
    const Status status = host_matrix_allocate("the result", out->rows, out->cols, &memory);
    *separate = strided_of_matrix(&memory);
    return status;
}

/* Computes products that are not empty. `waits` is an array of `count`. */
static Status run_ready(Product *products, int64_t count, const int *devices, int device_count,
                        bool *waits, Strided *outs)
{
    const Product any = products[0]; /* all tell the same caller that an out changes */
    Status status = many_find_waiting(products, count, waits);
    int64_t taken = 0;
    for (; taken < count && status.code == STATUS_OK; ++taken) {
        outs[taken] = products[taken].out;
        if (waits[taken]) {
            products[taken].out_changed = NULL;
            status = take_separate(&products[taken], &products[taken].out);
        }
    }
    if (status.code == STATUS_OK) {
        status = multiply_all(products, count, devices, device_count);
    }
    for (int64_t n = 0; n < taken; ++n) {
        if (waits[n] && products[n].out.data != outs[n].data) {
            if (status.code == STATUS_OK) {
                product_changes_out(&any);
                status = workers_copy(&outs[n], &products[n].out, &products[n].interrupt);
            }
            free(products[n].out.data);
        }
    }
    return status;
}

Status many_run(const Product *products, int64_t count, const int *devices, int device_count)
{
    Product *const own = malloc((size_t)(count + !count) * sizeof *own);
    bool *const waits = calloc((size_t)(count + !count), sizeof *waits);
    Strided *const outs = malloc((size_t)(count + !count) * sizeof *outs);
    int64_t left = 0;
    for (int64_t n = 0; own && n < count; ++n) {
        if (!is_empty(&products[n].out)) {
            own[left++] = product_as_read(&products[n]);
        }
    }
    Status status = status_ok();
    if (!own || !waits || !outs) {
        status = status_error(STATUS_OUT_OF_MEMORY, "no host memory for a list of %lld products",
                              (long long)count);
    } else if (left > 0) {
        status = run_ready(own, left, devices, device_count, waits, outs);
    }
    free(outs);
    free(waits);
    free(own);
    return status;
}
