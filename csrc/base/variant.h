/* A kernel variant as data. Each kernel's file defines its own. */
#ifndef SGEMM_VARIANT_H
#define SGEMM_VARIANT_H

#include <stdbool.h>

#include "interrupt.h"
#include "sgemm.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The smallest K that runs on tensor cores: with mma on any GPU, and with wgmma. Products with a
 * shorter K are computed in float32, since the proof of the error bound does not hold for them. */
enum { MMA_MIN_K = 256, WGMMA_MIN_K = 128 };

typedef enum { DEVICE_CPU, DEVICE_CUDA, DEVICE_KINDS } DeviceKind;

/* A converted operand that a launch keeps for later launches in the same stream with the same
 * operand. The caller passes an empty one to the first launch. After the last launch, it returns
 * the memory with scratch_free (scratch.h). */
typedef struct {
    void *memory;
    bool ready; /* false: not filled yet */
} Prepared;

/* Where a launch goes. */
typedef struct {
    int device;                 /* index of the device; the calling thread has made it current */
    void *stream;               /* CUDA: the stream to launch into */
    const Interrupt *interrupt; /* polled between launches; CPU: also in one. May be NULL */
    Prepared *prepared[2];      /* for A and for B; NULL if the operand is used only once */
    bool run_inline;            /* CPU: the calling thread runs it, without polling the interrupt */
    /* For a variant that reads it (addend.h). NULL: the result holds C */
    const struct Addend *addend DEFAULT(nullptr);
    /* Of A and of B. If they are not float32, `data` of the matrix is the address of its first
     * element all the same. Only `direct`, `mixed` and `auto_16bit` take such operands. */
    ElementType elements[2] DEFAULT({});
    /* For the rungs that `auto` launches, only with sgemm_is_symmetric: compute the sums on and
     * below the diagonal, and use those below it above it, too. */
    bool symmetric DEFAULT(false);
} Launch;

/* Computes the problem; returns once it is queued on the stream (CUDA) or done (CPU). */
typedef Status Launcher(const Sgemm *problem, const Launch *where);

/* The same for products of different shapes, none of them empty or a batch. No C overlaps another
 * product's operands. */
typedef Status ManyLauncher(const Sgemm *problems, int64_t count, const Launch *where);

/* How a kernel is launched, and the facts that the catalog shows. */
typedef struct KernelSpec {
    const char *symbol DEFAULT(nullptr); /* the kernel's name in its source */
    int block_tile[3] DEFAULT({});       /* BM, BN, BK: the tile of a block, and its step along K */
    int thread_tile[2] DEFAULT({});      /* TM, TN: the tile of a thread */
    int threads[2] DEFAULT({});          /* blockDim.x, blockDim.y */
    int static_bytes DEFAULT(0);         /* static shared memory of a block */
    int dynamic_bytes DEFAULT(0);        /* dynamic shared memory of a block */
    int cluster DEFAULT(1);              /* blocks per cluster */
    bool overlaps DEFAULT(false);   /* programmatic launch: waits for the previous kernel itself */
    bool contiguous DEFAULT(false); /* takes row-major matrices without gaps, and no others */
    bool reads_addend DEFAULT(false); /* takes Launch::addend */
    /* The bits of a row depend on all of its row of A and on all of B. So a product is divided into
     * rows, and not otherwise, and the transposed problem does not take its place. */
    bool rows_alone DEFAULT(false);
} KernelSpec;

typedef struct Variant {
    const char *name;
    const char *summary;
    const char *file; /* its source; NULL for a library, simt, auto and invariant */
    KernelSpec spec;
    int min_compute_capability[2];  /* major, minor */
    bool architecture_specific;     /* newer GPUs cannot run it, as with code for sm_90a */
    int batch;                      /* the most products of a launch; 1: it takes no batches */
    Launcher *launch[DEVICE_KINDS]; /* NULL if that kind of device cannot run it */
    /* NULL if each product has a launch of its own */
    ManyLauncher *launch_many[DEVICE_KINDS] DEFAULT({});
} Variant;

/* The most products in one launch of a kernel that numbers them in y: the size of a grid there. */
enum { BATCH_OF_LAUNCH = 65535 };

/* STATUS_INVALID for sizes that do not fit into the 32-bit parameters of a kernel that takes
 * contiguous matrices, or with more blocks than a grid has. */
Status variant_fits(const KernelSpec *spec, int64_t M, int64_t N, int64_t K);

/* Launches a product, or a batch in as many launches as the variant needs. *launched is the number
 * of products that earlier calls have launched, initially 0. After an error, it tells where to go
 * on. */
Status variant_launch(const Variant *variant, DeviceKind kind, const Sgemm *problem,
                      const Launch *where, int64_t *launched);

#ifdef __cplusplus
}
#endif
#endif
