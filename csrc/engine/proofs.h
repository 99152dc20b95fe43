/* GPUs whose tensor cores passed the proof (sgemm_kernels/proving), as Python passes them. */
#ifndef SGEMM_PROOFS_H
#define SGEMM_PROOFS_H

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

/* Valid until the process ends. Replaces the proof of the same GPU. */
void proof_keep(const Proof *proof);

/* The proof of a GPU, or NULL. If model is NULL, of any GPU of this compute capability. */
const Proof *proof_find(const char *model, const int capability[2]);

#ifdef __cplusplus
}
#endif
#endif
