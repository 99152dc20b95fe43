/* Chooses how to compute a product of host arrays on a GPU. */
#include "host_arrays.h"

#include "../../base/cuda/allocator.h"
#include "memory_lock.h"
#include "session.h"

/* Up to this total size, one thread gathers the operands for a single copy. */
static constexpr double small_bytes = 1 << 18;

static double bytes_of(const Strided &array)
{
    return static_cast<double>(array.rows) * static_cast<double>(array.cols) * sizeof(float);
}

static Status multiply(const Product *given, Streams *streams, bool *began)
{
    const Product typed = product_typed(given, given->device), *const product = &typed;
    /* A batch arrives in pieces of a few megabytes: ../batch_pieces.h. */
    const bool is_small =
        product->count > 1 ||
        bytes_of(product->A) + bytes_of(product->B) + bytes_of(product->out) <= small_bytes;
    const Status status =
        is_small ? multiply_small(product, streams) : multiply_by_panels(product, streams, began);
    allocator_settle(product->device, streams->run, true);
    return status;
}

/* If memory runs out, waits until other calls have returned theirs and tries again alone. */
static Status multiply_locked(const Product *product, Streams *streams)
{
    const int device = product->device;
    bool began = false;
    memory_lock_shared(device);
    Status status = multiply(product, streams, &began);
    memory_unlock(device);
    const bool repeatable = !began || product->beta == 0.0f || !product_is_in_place(product);
    if (status.code != STATUS_OUT_OF_MEMORY || !repeatable) {
        return status;
    }
    if (!memory_lock_exclusive(device, &product->interrupt)) {
        return status_error(STATUS_INTERRUPTED, "interrupted");
    }
    status = multiply(product, streams, &began);
    memory_unlock(device);
    return status;
}

extern "C" Status cuda_multiply(const Product *product)
{
    const int device = product->device;
    Status status = session_open(device);
    if (status.code != STATUS_OK) {
        return status;
    }
    Streams *streams;
    status = streams_alloc(device, &streams);
    if (status.code == STATUS_OK) {
        bool began;
        /* The GPUs of a team wait for each other, so they must not wait for other calls. */
        status =
            product->team ? multiply(product, streams, &began) : multiply_locked(product, streams);
        streams_free(device, streams);
    }
    session_close();
    return status;
}
