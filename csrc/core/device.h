/* What a kind of device offers, as one struct of functions. */
#ifndef SGEMM_DEVICE_H
#define SGEMM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sgemm.h"
#include "status.h"
#include "variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Figures for a person; 0 or an empty text where a kind of device has no such thing. */
typedef struct {
    char model[256];
    char problem[STATUS_MESSAGE_BYTES]; /* why it cannot be used; empty when it can */
    int compute_capability[2];          /* NVIDIA's */
    int multiprocessors;                /* CPU: cores that this process may use */
    bool fused_multiply_add; /* kernels multiply and add with one rounding, as every GPU does */
    int clock_mhz, memory_clock_mhz;
    int64_t memory_bytes, l2_bytes;
    int64_t shared_bytes_per_multiprocessor, registers_per_multiprocessor;
    char driver[16];     /* the newest CUDA or HIP that the driver serves, as "13.0" */
    char pci_bus_id[16]; /* as "0000:3B:00.0": names a GPU to NVML, which counts them otherwise */
} DeviceInfo;

/* A comparison of kernel times: in each round each variant multiplies once, by turns, going
 * through as many sets of equal operands. */
typedef struct {
    const Variant *const *variants; /* NULL in the place of a competitor */
    int count;
    int device;

    /* Has the competitor at a place queue a product in the device's legacy default stream. Asked by
     * the thread that measures. */
    Status (*compete)(void *context, int place, const Sgemm *problem);
    void *context;

    /* In host memory, lines following one another. C, unless its data is NULL, is where the first
     * set's result begins, and takes what is there in the end. */
    Matrix A, B, C;
    int sets, rounds;
    double *seconds; /* rounds x count; NaN where a sample was not fit to use */
} Measurement;

struct Product; /* product.h */
typedef struct DeviceArrays DeviceArrays;

typedef struct {
    const char *name; /* "cpu", or GPU_KIND */

    /* How many devices of this kind there are. 0: none, and *why says so. -1: there may be some,
     * but this process cannot reach them, and *why says what to do. */
    int (*count)(Status *why);

    /* Whether this build can use a device, 0 <= index < count; if not, why. Cheap. */
    Status (*usable)(int index);

    /* A device's compute capability, major and minor, for which AMD's GPUs have figures of their own;
     * NULL where there is no such thing. Cheap. */
    void (*compute_capability)(int index, int capability[2]);

    /* Describes a device, 0 <= index < count. */
    Status (*describe)(int index, DeviceInfo *info);

    /* Computes a product whose operands are in host memory, and whose out shares none with A and B,
     * nor with C unless it is C. */
    Status (*multiply)(const struct Product *product);

    /* The rest is NULL for the CPU, which has no memory of its own. */

    /* Pins host memory, whole pages, for copies to and from any device of this kind; false if that
     * is refused. */
    bool (*pin)(int index, void *memory, size_t bytes);

    /* False if the memory is still pinned: then it must stay mapped. */
    bool (*unpin)(int index, void *memory);

    /* Fills in measurement->seconds. */
    Status (*measure)(const Measurement *measurement);

    /* Likewise for what run copies: A and B to the device, and the result back into C. */
    Status (*measure_copies)(const Measurement *measurement);

    /* Gives memory that is kept for later calls back to all devices of this kind; NULL where there is
     * none. */
    void (*give_idle_back)(void);

    /* For arrays that are on it already: cuda/device_arrays.h. */
    const DeviceArrays *arrays;
} Device;

extern const Device cpu_device;
#ifdef SGEMM_CUDA
extern const Device cuda_device;
void cuda_give_idle_back(void); /* its give_idle_back */

/* Opens the cuBLAS or rocBLAS library at path for the variants that are its; a second call changes
 * nothing. */
Status cublas_open(const char *path);
bool cublas_is_open(void);
#endif

/* By DeviceKind; NULL for a kind that this build leaves out. */
extern const Device *const device_kinds[DEVICE_KINDS];

#ifdef __cplusplus
}
#endif
#endif
