/* Products of arrays that are already on a GPU; their data never moves to the host. This interface
 * for the Python extension needs no CUDA headers. */
#ifndef SGEMM_CUDA_DEVICE_ARRAYS_H
#define SGEMM_CUDA_DEVICE_ARRAYS_H

#include <stdbool.h>

#include "../device.h"
#include "../product.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MOST_EVENTS = 5 };

/* A reference-counted matrix in device memory. The owners are the caller's array and the libraries
 * that the memory was exported to. device_buffer.cu tracks which streams use it. */
typedef struct DeviceBuffer {
    Matrix matrix;    /* row-major and contiguous; data is NULL if it is empty */
    ElementType type; /* of its elements: a result has float32 */
    int device;
    int owners;
    /* The package's own work: the first event follows the last write; the others follow later
     * reads, one per stream. NULL: nothing to wait for. */
    struct SharedEvent *events[MOST_EVENTS];
    /* Where importing libraries may have queued work: in the default streams, in the stream with
     * this ID (0: none), or in any stream until the buffer is freed. */
    bool exported_to_default;
    unsigned long long exported_to;
    bool exported_anywhere;
    unsigned exports;          /* so far */
    struct DeviceBuffer *next; /* in the list of buffers without owners */
} DeviceBuffer;

enum { MOST_USED = 5 }; /* by one product */

typedef struct {
    DeviceBuffer *buffer;
    bool writes;
} BufferUse;

/* The calling thread's use of one stream between enter and leave. The device is current. */
typedef struct {
    int device;
    void *stream;
    struct Streams *streams;  /* owner of the stream; NULL: the caller's stream */
    bool captured;            /* the stream is being captured into a CUDA graph */
    bool finished;            /* scope_finish has waited for all queued work */
    unsigned long long order; /* identifies the stream, if uses > 0: see order_of */
    BufferUse of_one[MOST_USED];
    BufferUse *used; /* buffers that the work queued in this scope uses; initially of_one */
    int uses;
    /* The matrix whose fp16 pairs are in a buffer, for products with it as B; NULL without one. */
    const DeviceBuffer *pairs;
    Matrix pairs_of;
} StreamScope;

/* Functions for arrays on a device. In a forked child of a process that used the device, every
 * function that returns a Status fails. */
struct DeviceArrays {
    /* The device that owns the memory at an address; -1: none. */
    Status (*device_of)(const void *address, int *device);

    /* Makes a device current for this thread until close. Call close if this succeeds. */
    Status (*open)(int index);
    void (*close)(void);

    /* Enters a scope with the caller's stream; with NULL, with a stream of the package. Frees
     * buffers that have no owner. Call leave if this succeeds. */
    Status (*enter)(int index, void *stream, StreamScope *scope);
    void (*leave)(StreamScope *scope);

    /* The scope's stream waits for the work queued so far in another stream of the device. */
    Status (*wait_for_stream)(StreamScope *scope, void *stream);

    /* The scope's stream waits until it may read or write the buffer: for the package's work and
     * for work of importing libraries. The host may wait for the whole device, so the caller must
     * not hold a lock that a CUDA callback needs. At most MOST_USED calls per scope, unless the
     * caller has set scope->used to more memory. */
    Status (*use)(StreamScope *scope, DeviceBuffer *buffer, bool writes);

    /* Computes the batch as product_run does. The operands are on devices[0], the scope's
     * device. If out.data is NULL, *result is a new buffer, possibly empty, that the caller
     * owns; its matrix has the rows of all products. Further devices read rows from the first and
     * write their results back to it. In a caller's stream and on one device, this returns when all
     * work is queued; otherwise when the result is complete. */
    Status (*run)(StreamScope *scope, const Product *product, const struct Batch *batch,
                  const int *devices, int count, DeviceBuffer **result);

    /* The same for each product of a list, without batches. All have the same variant, and no two
     * `out` share memory. results[n] is set if out.data of product n is NULL; scope->used has a
     * place for each. If `results` is NULL, such products are empty. */
    Status (*run_many)(StreamScope *scope, const Product *products, int64_t count,
                       const int *devices, int gpus, DeviceBuffer **results);

    /* Copies a matrix, from host memory if on_host, to a new buffer, by columns if
     * is_column_major(B). Elements of 16 bits stay as they are if `auto` takes them so on the GPU,
     * and become float32 otherwise. A float32 matrix that the GPU's tensor cores can use is also
     * split into fp16 pairs in another buffer; otherwise *pairs is NULL. The caller owns both.
     * Returns when all work is done. */
    Status (*prepare)(StreamScope *scope, const Strided *B, bool on_host, DeviceBuffer **copy,
                      DeviceBuffer **pairs);

    /* Products in this scope whose B is this matrix do not split it, but read its pairs. As for
     * use. */
    Status (*use_pairs)(StreamScope *scope, DeviceBuffer *pairs, const Strided *B);

    /* Copies a buffer to contiguous host memory of the same shape. */
    Status (*download)(DeviceBuffer *buffer, float *host);

    /* Copies a buffer and waits for the copy, which the caller owns. */
    Status (*duplicate)(DeviceBuffer *buffer, DeviceBuffer **copy);

    /* Exports the buffer to a consumer that works in this stream of the device. The stream waits
     * for the package's work. With NULL the consumer may use any stream, and none waits. */
    Status (*export_to)(DeviceBuffer *buffer, void *stream);

    /* True if all work that the package queued on the buffer is done. */
    bool (*is_ready)(DeviceBuffer *buffer);

    /* Adds or removes an owner, from any thread. drop makes no CUDA call and takes no lock, so
     * destructors may call it at any time, even in a forked child. A later call frees the
     * memory. */
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
