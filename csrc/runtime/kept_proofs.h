/* The proofs that `sgemm-kernels prove` has kept for this user. */
#ifndef SGEMM_KEPT_PROOFS_H
#define SGEMM_KEPT_PROOFS_H

/* Reads the file and keeps its proofs (proofs.h). One that is missing, damaged or of another
 * build has none. */
void kept_proofs_read(void);

/* The same, once in a process. */
void kept_proofs_read_once(void);

#endif
