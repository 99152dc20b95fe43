/* One kernel of the ladder, as its own file describes it. */
#ifndef SGEMM_VARIANT_H
#define SGEMM_VARIANT_H

#include <stdbool.h>

#include "interrupt.h"
#include "sgemm.h"
#include "status.h"

typedef enum { DEVICE_CPU, DEVICE_CUDA, DEVICE_KINDS } DeviceKind;

/* What a launch made of an operand before it multiplied, for later ones in the same stream that have the
 * same operand. Whoever launches owns it, gives its memory back by scratch_give (scratch.h) after the
 * last of them, and begins with none. */
typedef struct {
    void *memory;
    bool ready; /* or still to be filled */
} Prepared;

/* Where a launch goes. */
typedef struct {
    int device;                 /* index of the device, which is current for the calling thread */
    void *stream;               /* CUDA: the stream to launch into */
    const Interrupt *interrupt; /* CPU: asked while the launch runs; may be NULL */
    Prepared *prepared;         /* of A and of B; NULL where they come but once */
    bool brief; /* CPU: over so soon that the calling thread runs it, not to be interrupted */
} Launch;

/* Computes the problem; returns once it is queued on the stream (CUDA) or done (CPU). */
typedef Status Launcher(const Sgemm *problem, const Launch *where);

/* A kernel as data: what it is launched by, whether it belongs to this build or was compiled while
 * the program runs, and what the catalog tells of it. */
typedef struct {
    const char *symbol; /* the kernel's name in its source */
    int block_tile[3];  /* BM, BN, BK: what one block computes, and its step through K */
    int thread_tile[2]; /* TM, TN: results that one thread owns */
    int threads[2];     /* of a block, along x and y */
    int static_bytes;   /* of a block's shared memory: in arrays of the kernel, */
    int dynamic_bytes;  /* and given with the launch */
    int cluster;        /* blocks of a cluster; 0 or 1: none */
    bool
        overlaps; /* its blocks come in while those of the kernel before it on the stream leave, for
                      whose results they wait themselves */
    const char *defines; /* with which its source is compiled, as on a command line */
} KernelSpec;

typedef struct {
    const char *name;
    const char *summary;
    const char
        *file; /* its source in csrc/kernels; NULL for a library's kernel, or a choice of kernels */
    KernelSpec spec;
    int min_compute_capability[2];  /* major, minor */
    bool architecture_specific;     /* no newer one runs it: it is machine code for sm_90a, say */
    Launcher *launch[DEVICE_KINDS]; /* NULL where that kind of device cannot run it */
} Variant;

#endif
