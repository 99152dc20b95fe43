/* One kernel of the ladder, as its own file describes it. */
#ifndef SGEMM_VARIANT_H
#define SGEMM_VARIANT_H

#include <stdbool.h>

#include "interrupt.h"
#include "sgemm.h"
#include "status.h"

typedef enum { DEVICE_CPU, DEVICE_CUDA, DEVICE_KINDS } DeviceKind;

/* Where a launch goes. */
typedef struct {
    int device;                 /* index of the device, which is current for the calling thread */
    void *stream;               /* CUDA: the stream to launch into */
    const Interrupt *interrupt; /* CPU: asked while the launch runs; may be NULL */
} Launch;

/* Computes the problem; returns once it is queued on the stream (CUDA) or done (CPU). */
typedef Status Launcher(const Sgemm *problem, const Launch *where);

typedef struct {
    const char *name;
    const char *summary;
    const char *file;              /* its source in csrc/kernels; NULL for a library's kernel */
    int block_tile[3];             /* BM, BN, BK: what one block computes, and its step through K */
    int thread_tile[2];            /* TM, TN: results that one thread owns */
    int threads;                   /* per block */
    int shared_bytes;              /* per block */
    int min_compute_capability[2]; /* major, minor */
    Launcher *launch[DEVICE_KINDS]; /* NULL where that kind of device cannot run it */
} Variant;

#endif
