/* One product of arrays in host memory through a GPU: which way it goes. */
#include "host_arrays.h"

#include "allocator.h"
#include "session.h"

/* Up to here one thread gathers both operands for one copy. */
static constexpr double small_bytes = 1 << 18;

static double bytes_of(const Strided &array)
{
    return static_cast<double>(array.rows) * static_cast<double>(array.cols) * sizeof(float);
}

extern "C" Status cuda_multiply(const Product *product)
{
    const int device = product->device;
    Status status = session_open(device);
    if (status.code != STATUS_OK) {
        return status;
    }
    Streams *streams;
    status = streams_take(device, &streams);
    if (status.code == STATUS_OK) {
        const bool is_small =
            bytes_of(product->A) + bytes_of(product->B) + bytes_of(product->out) <= small_bytes;
        status = (is_small ? multiply_small : multiply_by_panels)(product, streams);
        allocator_settle(device, streams->run, true);
        streams_give(device, streams);
    }
    session_close();
    return status;
}
