/* Counts the memory transactions of one block of a kernel from the kernel's own accesses. */
#ifndef SGEMM_ACCESS_TRACE_H
#define SGEMM_ACCESS_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "../../base/status.h"
#include "../../base/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WARP = 32, MOST_ACCESSES = 64, OPERAND_BYTES = 24 };

/* The accesses of one source line to one array with one width. A request combines the n-th
 * execution of one access by all threads of a warp. A request to global memory moves whole 32-byte
 * sectors in 128-byte cache lines. A request to shared memory takes one wavefront, plus one for
 * each further word that the busiest bank must deliver. */
typedef struct {
    const char *file; /* the kernel's file, or a header */
    int line;
    int launch;         /* index of the product's kernel */
    bool shared, store; /* otherwise global, load */
    bool copied;        /* half of an asynchronous copy; the other half is another access */
    char operand[OPERAND_BYTES]; /* A, B, C, scratch, or the name of a shared array */
    int bytes;                   /* per thread */
    int64_t requests;
    int64_t lanes;        /* active threads, over all requests */
    int64_t transactions; /* sectors or wavefronts */
    int64_t lines;        /* 128-byte lines, counted per request; 0 for shared memory */
    int64_t least;        /* minimum transactions for the same bytes */
    int64_t row_bytes;    /* bytes between rows of the array; shared memory: one row of banks */
    int64_t first[WARP];  /* first request: byte offset in the array, -1: inactive */
} Access;

typedef struct Counts {
    int64_t rows, cols; /* results of the block, or of each block of a batch */
    int16_t *owners;    /* the thread that stored each result of the first, row-major; -1: none */
    int64_t tensor_multiply_adds; /* on tensor cores */
    int count;
    Access accesses[MOST_ACCESSES]; /* sorted by file and line; loads first */
} Counts;

/* Counts the first block of each product of A (M, K) and B (K, N) in a batch. All sizes are at
 * least 1, and the memory layout is as on a GPU. If several blocks or kernels compute the block's
 * results together, all are counted, including their accesses to intermediate memory, `scratch`. If
 * a thread skips an access, its later executions are paired with earlier ones of the other threads.
 * The variant must run on the CPU device. Only one thread counts at a time. Call
 * free(counts->owners) afterwards, also on failure. */
Status trace_block(const Variant *variant, int64_t batch, int64_t M, int64_t N, int64_t K,
                   const Interrupt *interrupt, Counts *counts);

#ifdef __cplusplus
}
#endif
#endif
