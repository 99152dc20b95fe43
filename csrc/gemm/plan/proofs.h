/* GPUs whose tensor cores passed the proof (sgemm_kernels/proving). */
#ifndef SGEMM_PROOFS_H
#define SGEMM_PROOFS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    char model[256]; /* the GPU's name */
    int capability[2];
    /* Of the rung mma, fitted there, in cycles of the estimate of simt (plan.h): */
    double rate;  /* float32 multiply-adds per cycle and multiprocessor */
    double start; /* cycles of all launches */
} Proof;

/* Valid until the process ends. Replaces the proof of the same GPU. Does nothing and returns false
 * unless rate and start are above 0 and below 1e9. */
bool proof_keep(const Proof *proof);

/* The proof of a GPU, or NULL. If model is NULL, of any GPU of this compute capability. */
const Proof *proof_find(const char *model, const int capability[2]);

#ifdef __cplusplus
}
#endif
#endif
