/* The structures of DLPack, with which libraries share arrays: the binary interface of version 1.0
 * and the unversioned one before it (https://dmlc.github.io/dlpack). */
#ifndef SGEMM_DLPACK_H
#define SGEMM_DLPACK_H

#include <stdint.h>

/* DLPack's device types, the number of a GPU's default stream, and the type codes of floats. HIP's
 * managed memory has no device type of its own. */
#ifdef SGEMM_HIP
enum { DLPACK_CPU = 1, DLPACK_GPU = 10, DLPACK_GPU_HOST = 11, DLPACK_GPU_MANAGED = DLPACK_GPU };
enum { DLPACK_DEFAULT_STREAM = 0 };
#else
enum { DLPACK_CPU = 1, DLPACK_GPU = 2, DLPACK_GPU_HOST = 3, DLPACK_GPU_MANAGED = 13 };
enum { DLPACK_DEFAULT_STREAM = 1 };
#endif
enum { DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4 };
enum { DLPACK_READ_ONLY = 1, DLPACK_COPIED = 2 }; /* bits of DlVersioned.flags */

typedef struct {
    void *data;
    struct {
        int32_t kind, index;
    } device;
    int32_t dimensions;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } element;
    int64_t *shape, *strides; /* in elements; strides == NULL: row-major */
    uint64_t byte_offset;     /* from data to the first element */
} DlTensor;

/* The content of a capsule named "dltensor". */
typedef struct DlManaged {
    DlTensor tensor;
    void *context;
    void (*deleter)(struct DlManaged *self);
} DlManaged;

/* The content of a capsule named "dltensor_versioned". */
typedef struct DlVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct DlVersioned *self);
    uint64_t flags;
    DlTensor tensor;
} DlVersioned;

/* The content of the capsule "dlpack_exchange_api", which an array's type may have as the attribute
 * __dlpack_c_exchange_api__ (DLPack 1.3). The functions need the GIL and return 0, or a number
 * other than 0 with an exception set. None of them synchronizes. */
typedef struct DlExchange {
    struct {
        uint32_t major, minor;
    } version;
    const struct DlExchange *older; /* for consumers of an older major version; or NULL */
    /* Allocates a contiguous tensor with the type, device and shape of `like`. On failure calls
     * set_error, which sets the exception. */
    int (*allocate)(DlTensor *like, DlVersioned **made, void *context,
                    void (*set_error)(void *context, const char *kind, const char *message));
    int (*export_object)(void *object, DlVersioned **tensor);
    int (*to_object)(DlVersioned *tensor, void **object);
    /* Borrows a view, which is valid while the caller holds the GIL; the function may be NULL. */
    int (*view)(void *object, DlTensor *tensor);
    int (*current_stream)(int32_t device_kind, int32_t device_index, void **stream);
} DlExchange;

#endif
