/* The interface of a kind of device: one struct of functions. */
#ifndef SGEMM_DEVICE_H
#define SGEMM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/sgemm.h"
#include "../base/status.h"
#include "../base/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Properties to show to a user. A property that the kind of device lacks is 0 or an empty
 * string. */
typedef struct {
    char model[256];
    char problem[STATUS_MESSAGE_BYTES]; /* why it cannot be used; empty if it can */
    int compute_capability[2];          /* NVIDIA only */
    int multiprocessors;                /* CPU: cores that this process may use */
    bool fused_multiply_add;            /* multiply-adds round once; true for every GPU */
    int clock_mhz, memory_clock_mhz, memory_bus_bits;
    int64_t memory_bytes, l2_bytes;
    int64_t shared_bytes_per_multiprocessor, registers_per_multiprocessor;
    char driver[16];     /* the newest CUDA or HIP version that the driver supports: "13.0" */
    char pci_bus_id[16]; /* "0000:3B:00.0"; identifies the GPU to NVML, whose indices differ */
} DeviceInfo;

/* A comparison of kernel times. In each round, every variant computes the product once. Successive
 * products cycle through `sets` copies of the operands. */
typedef struct {
    const Variant *const *variants; /* NULL at the index of a competitor */
    int count;
    int device;

    /* Makes the competitor at index `place` queue a product in the device's legacy default stream.
     * Called by the measuring thread. */
    Status (*compete)(void *context, int place, const Sgemm *problem);
    void *context;

    /* In host memory, contiguous. Unless C.data is NULL, C initializes the first set's result, and
     * the final content of that result is copied back to C. */
    Matrix A, B, C;
    int64_t products; /* in the batch, whose matrices follow one another; 1: no batch */
    int sets, rounds;
    double *seconds; /* rounds x count; NaN for a discarded sample */
} Measurement;

struct Product; /* product.h */
struct Batch;   /* batch.h */
typedef struct DeviceArrays DeviceArrays;

typedef struct {
    const char *name; /* "cpu", or GPU_KIND */

    /* The number of devices of this kind. 0: none, and *why gives the reason. -1: this process
     * cannot reach any that exist, and *why says what to do. */
    int (*count)(Status *why);

    /* Checks that this build can use a device, 0 <= index < count. Cheap. */
    Status (*usable)(int index);

    /* A device's compute capability, major and minor; AMD GPUs use their own numbers. Cheap. NULL
     * if the kind of device has no compute capability. */
    void (*compute_capability)(int index, int capability[2]);

    /* Whether `auto` on the device takes operands of 16 bits as they are (variant_auto_16bit).
     * Cheap. NULL if it does on every device that can run that. */
    bool (*runs_16bit)(int index);

    /* Describes a device, 0 <= index < count. */
    Status (*describe)(int index, DeviceInfo *info);

    /* Computes a product whose operands are in host memory. `out` must not overlap A or B. It may
     * be exactly C, but must not overlap C otherwise. */
    Status (*multiply)(const struct Product *product);

    /* The same for many products of one variant. No `out` overlaps an operand of another product.
     * NULL if the device computes them one after the other. */
    Status (*multiply_many)(const struct Product *products, int64_t count);

    /* The following are NULL for the CPU device, which has no separate memory. */

    /* Pins whole pages of host memory for copies to and from any device of this kind. False if the
     * driver refuses. */
    bool (*pin)(int index, void *memory, size_t bytes);

    /* False if the memory is still pinned: the caller must then keep it mapped. */
    bool (*unpin)(int index, void *memory);

    /* Fills in measurement->seconds. */
    Status (*measure)(const Measurement *measurement);

    /* The same for the copies that run makes: A and B to the device, the result back into C. */
    Status (*measure_copies)(const Measurement *measurement);

    /* Frees the device memory that all devices of this kind cache for later calls; NULL if they
     * cache none. */
    void (*give_idle_back)(void);

    /* Queues a product of arrays in this device's memory on the caller's stream (1: the legacy
     * default stream), and does not wait for it. `out` may overlap A, B or C, as for
     * product_run. */
    Status (*queue)(const struct Product *product, const struct Batch *batch, void *stream);

    /* The same for many products of one variant. No two `out` share memory. */
    Status (*queue_many)(const struct Product *products, int64_t count, void *stream);

    /* Functions for arrays that are already on the device: cuda/device_arrays.h. */
    const DeviceArrays *arrays;
} Device;

extern const Device cpu_device;
#ifdef SGEMM_CUDA
extern const Device cuda_device;
void cuda_give_idle_back(void); /* its give_idle_back */

/* Opens the cuBLAS or rocBLAS library at path for the reference variants. Later calls do
 * nothing. */
Status cublas_open(const char *path);
bool cublas_is_open(void);
#endif

/* Indexed by DeviceKind; NULL for a kind that this build omits. */
extern const Device *const device_kinds[DEVICE_KINDS];

/* Sets *count to the number of GPUs. If it is not positive, the status gives the reason. */
Status cuda_count(int *count);

/* The index of the first GPU that this build can use; -1, with the reason in *why, if there is
 * none. */
int first_usable_gpu(Status *why);

/* Whether the device can run the variant. A variant that runs in a library also needs the library,
 * which this does not check. */
Status device_can_run(const Variant *variant, DeviceKind kind, int index);

#ifdef __cplusplus
}
#endif
#endif
