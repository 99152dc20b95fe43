/* Products of arrays that are on a GPU already: no byte of them crosses to the host. */
#ifndef SGEMM_CUDA_DEVICE_ARRAYS_H
#define SGEMM_CUDA_DEVICE_ARRAYS_H

#include <stdbool.h>

#include "../core/device.h"
#include "../core/product.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix in device memory and a count of its owners: the array that a caller has, and libraries
 * that the memory was lent to. */
typedef struct DeviceBuffer {
    Matrix matrix; /* by rows, which follow one another; no data when it is empty */
    int device;
    void *stream; /* that it is computed in, */
    void *ready;  /* and the event after that; NULL when there is nothing to wait for */
    int owners;
    bool lent; /* work that we know nothing of may still use it when its last owner goes */
    struct DeviceBuffer *next; /* of those that nobody owns */
} DeviceBuffer;

/* One owner more. From any thread. */
void buffer_share(DeviceBuffer *block);

/* One owner less. What nobody owns is kept until a later call gives the memory back: this makes no
 * CUDA call and takes no lock, so that destructors may call it at any time, in any process. */
void buffer_drop(DeviceBuffer *block);

/* All blocks that nobody owns, as a list, which is the caller's. */
DeviceBuffer *buffer_take_dropped(void);

/* Puts one of them back. */
void buffer_put_back(DeviceBuffer *block);

/* A device made current for the calling thread, and a stream of it to work in. */
typedef struct {
    Session session;
    void *stream;
    struct Streams *streams; /* that the stream is of; NULL if it is the caller's */
    DeviceBuffer *passed; /* that nobody owns any more, and only work in this stream still uses */
} Visit;

/* What a kind of device offers for arrays that are on it. */
struct DeviceArrays {
    void (*share)(DeviceBuffer *block); /* buffer_share */
    void (*drop)(DeviceBuffer *block);  /* buffer_drop */

    /* The device whose memory an address is in, or -1 for none. */
    Status (*device_of)(const void *address, int *device);

    /* Begins to work in a stream, or with NULL in one of the package's. Gives back what blocks that
     * nobody owns had. leave is owed after success. */
    Status (*enter)(int index, void *stream, Visit *visit);
    void (*leave)(Visit *visit);

    /* The visit's stream waits for what is queued in another of its device so far, or until a block
     * is ready, of which work that is queued afterwards may use the memory. */
    Status (*wait_for_stream)(Visit *visit, void *stream);
    Status (*wait_for_block)(Visit *visit, DeviceBuffer *block);

    /* Computes the product, as product_run does, of operands that are on devices[0], the visit's.
     * With no out.data the result is a new block in *result, the caller's, which may be empty;
     * otherwise *result is the block of out, or NULL if out is someone else's. Further devices take
     * rows from the first and send theirs back. Where the stream is the package's, or there are
     * several devices, returns when the result is there; else when all is queued. */
    Status (*run)(Visit *visit, const Product *product, const int *devices, int count,
                  DeviceBuffer **result);

    /* Copies a block to host memory of its shape, whose rows follow one another. */
    Status (*download)(const DeviceBuffer *block, float *host);

    /* A copy of a block, ready; the caller's. */
    Status (*duplicate)(DeviceBuffer *block, DeviceBuffer **copy);

    /* Makes a stream of the block's device wait until the block is ready. */
    Status (*order)(const DeviceBuffer *block, void *stream);

    /* Whether it is ready. */
    bool (*is_ready)(const DeviceBuffer *block);
};

#ifdef SGEMM_CUDA
extern const DeviceArrays cuda_arrays;
#endif

#ifdef __cplusplus
}
#endif
#endif
