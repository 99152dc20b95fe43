/* GPUs that reach each other's memory directly, by NVLink or the bus. */
#ifndef SGEMM_CUDA_PEERS_H
#define SGEMM_CUDA_PEERS_H

/* Lets two GPUs, of which `home` is current, reach each other's memory directly; false where they cannot:
 * copies between them go through the host. Once for all calls, and for good. */
bool peers_connect(int home, int away);

/* Floats a second that copies from `home`, which is current, to `away` move. The first call measures
 * them, in milliseconds. 0 if that fails; the next call then measures again. */
double peers_floats_a_second(int home, int away);

#endif
