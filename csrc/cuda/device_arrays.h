/* Products of arrays that are on a GPU already: no byte of them crosses to the host. What the face of
 * Python needs of it, without CUDA's headers. */
#ifndef SGEMM_CUDA_DEVICE_ARRAYS_H
#define SGEMM_CUDA_DEVICE_ARRAYS_H

#include <stdbool.h>

#include "../core/device.h"
#include "../core/product.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The end of work in a stream. */
typedef struct {
    void *stream;
    void *event; /* NULL: there is nothing to wait for */
} StreamEvent;

enum { MOST_EVENTS = 5 };

/* A matrix in device memory and a count of its owners: the array that a caller has, and libraries
 * that the memory was lent to. What is used when is device_buffer.cu's. */
typedef struct DeviceBuffer {
    Matrix matrix; /* by rows, which follow one another; no data when it is empty */
    int device;
    int owners;
    /* Of our work: the first of that which wrote it, others of that which has read it since, in a stream
     * each. */
    StreamEvent events[MOST_EVENTS];
    /* Those it was lent to may have queued work with it: in the default streams, in the stream of this
     * number (0: none), or who knows where, for as long as it lives. */
    bool exported_to_default;
    unsigned long long exported_to;
    bool exported_anywhere;
    unsigned exports;          /* so far */
    struct DeviceBuffer *next; /* of those that nobody owns */
} DeviceBuffer;

enum { MOST_USED = 4 };

/* A device made current for the calling thread, and a stream of it to work in. */
typedef struct {
    int device;
    void *stream;
    struct Streams *streams; /* that the stream is of; NULL if it is the caller's */
    bool captured;           /* what is queued becomes part of a CUDA graph */
    bool finished;           /* scope_finish has waited for all that was queued */
    struct {
        DeviceBuffer *buffer;
        bool writes;
    } used[MOST_USED]; /* by what this scope queues */
    int uses;
} StreamScope;

/* What a kind of device offers for arrays that are on it. In a forked child of a process that used it
 * whatever returns a status fails. */
struct DeviceArrays {
    /* The device whose memory an address is in, or -1 for none. */
    Status (*device_of)(const void *address, int *device);

    /* Makes a device current for this thread until close, which is owed after success. */
    Status (*open)(int index);
    void (*close)(void);

    /* Begins to work in a stream, or with NULL in one of the package's. Gives back what buffers that
     * nobody owns had. leave is owed after success. */
    Status (*enter)(int index, void *stream, StreamScope *scope);
    void (*leave)(StreamScope *scope);

    /* The scope's stream waits for what is queued in another of its device so far. */
    Status (*wait_for_stream)(StreamScope *scope, void *stream);

    /* The scope's stream waits until it may read the buffer, or write it: for what the package has
     * queued, and for what those have that it is lent to. May wait for the whole device, so that no
     * lock may be held that a callback of CUDA needs. At most MOST_USED a scope. */
    Status (*use)(StreamScope *scope, DeviceBuffer *buffer, bool writes);

    /* Computes the product, as product_run does, of operands that are on devices[0], the scope's.
     * With no out.data the result is a new buffer in *result, the caller's, which may be empty.
     * Further devices take rows from the first and send theirs back. Where the stream is the
     * package's, or there are several devices, returns when the result is there; else when all is
     * queued. */
    Status (*run)(StreamScope *scope, const Product *product, const int *devices, int count,
                  DeviceBuffer **result);

    /* Copies a buffer to host memory of its shape, whose rows follow one another. */
    Status (*download)(DeviceBuffer *buffer, float *host);

    /* A copy of a buffer, ready; the caller's. */
    Status (*duplicate)(DeviceBuffer *buffer, DeviceBuffer **copy);

    /* Lends the buffer to work in a stream of its device, which waits for what the package has queued;
     * with NULL to work anywhere, for which nothing waits. */
    Status (*export_to)(DeviceBuffer *buffer, void *stream);

    /* Whether all that the package has queued with it is done. */
    bool (*is_ready)(DeviceBuffer *buffer);

    /* One owner more, and one less, from any thread. What nobody owns is kept until a later call gives
     * the memory back: drop makes no CUDA call and takes no lock, so that destructors may call it at
     * any time, in any process. */
    void (*share)(DeviceBuffer *buffer);
    void (*drop)(DeviceBuffer *buffer);
};

#ifdef SGEMM_CUDA
extern const DeviceArrays cuda_arrays;
#endif

#ifdef __cplusplus
}
#endif
#endif
