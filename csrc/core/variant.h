/* One kernel of the ladder, as its own file describes it. */
#ifndef SGEMM_VARIANT_H
#define SGEMM_VARIANT_H

#include <stdbool.h>

#include "interrupt.h"
#include "sgemm.h"
#include "status.h"

/* Sums of at least so many products run on tensor cores. Shorter ones are computed in float32. */
enum { HALVES_SHORTEST = 256 };

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

/* The value of a field that an initializer leaves out, in C++; in C it is zero. */
#ifdef __cplusplus
#define DEFAULT(value) = value
#else
#define DEFAULT(value)
#endif

/* A kernel as data: how it is launched, and what the catalog says of it. */
typedef struct {
    const char *symbol DEFAULT(nullptr); /* the kernel's name in its source */
    int block_tile[3] DEFAULT({});  /* BM, BN, BK: what a block computes, and its step along K */
    int thread_tile[2] DEFAULT({}); /* TM, TN: results of a thread */
    int threads[2] DEFAULT({});     /* of a block, along x and y */
    int static_bytes DEFAULT(0);    /* shared memory of a block: arrays of the kernel */
    int dynamic_bytes DEFAULT(0);   /* and what the launch adds */
    int cluster DEFAULT(1);         /* blocks of a cluster */
    bool overlaps DEFAULT(false);   /* starts early, and waits for the previous kernel itself */
} KernelSpec;

typedef struct {
    const char *name;
    const char *summary;
    const char
        *file; /* its source in csrc/ladder; NULL for a library's kernel, or a choice of kernels */
    KernelSpec spec;
    int min_compute_capability[2];  /* major, minor */
    bool architecture_specific;     /* no newer one runs it: it is machine code for sm_90a, say */
    Launcher *launch[DEVICE_KINDS]; /* NULL where that kind of device cannot run it */
} Variant;

#endif
