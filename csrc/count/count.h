/* Counts the memory transactions of one block of a kernel, from the kernel's own accesses. */
#ifndef SGEMM_COUNT_COUNT_H
#define SGEMM_COUNT_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "../core/status.h"
#include "../core/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WARP = 32, MOST_ACCESSES = 64, OPERAND_BYTES = 24 };

/* What one line of a kernel does to one array with accesses of one width. A request is what the
 * threads of a warp ask for together, each with its n-th execution of one access in the source.
 * Requests to global memory move whole 32-byte sectors, of some 128-byte lines; those to shared
 * memory take wavefronts, one for each word that a bank must deliver after its first. */
typedef struct {
    const char *file; /* in csrc/ladder: the kernel's own, or a header */
    int line;
    int launch;         /* which of the product's kernels, from 0 */
    bool shared, store; /* else global, load */
    bool copied;        /* by an asynchronous copy, whose other side is an access as well */
    char operand[OPERAND_BYTES]; /* A, B, C, scratch, or the name of a shared array */
    int bytes;                   /* per thread */
    int64_t requests;
    int64_t lanes;        /* threads that took part, over all requests */
    int64_t transactions; /* sectors or wavefronts */
    int64_t lines;        /* touched, by each request anew; of shared memory: none */
    int64_t least;        /* what the same bytes would take at best */
    int64_t row_bytes;    /* from one row of the array to the next; shared: once over the banks */
    int64_t first[WARP];  /* of the first request: bytes from the array's start, -1: no part */
} Access;

typedef struct Counts {
    int64_t rows, cols;           /* of the results that the block computes */
    int16_t *owners;              /* of these, by rows, the thread that stored it; -1: none did */
    int64_t tensor_multiply_adds; /* by tensor cores */
    int count;
    Access accesses[MOST_ACCESSES]; /* in the order of files and lines; loads first */
} Counts;

/* Counts the first block of the product of A (M, K) and B (K, N), all at least 1, laid out as on a
 * GPU; where several blocks or kernels compute its results together, all of them, with what they
 * keep in memory in between, `scratch`. A thread that leaves out an access is paired from then on by
 * what it does next. The variant must run on the CPU device. Calls from several threads wait for one
 * another. counts->owners is owed free(), after failure too. */
Status count_block(const Variant *variant, int64_t M, int64_t N, int64_t K,
                   const Interrupt *interrupt, Counts *counts);

#ifdef __cplusplus
}
#endif
#endif
