/* GPUs that reach each other's memory directly, by NVLink or the bus. */
#ifndef SGEMM_CUDA_PEERS_H
#define SGEMM_CUDA_PEERS_H

/* Lets two GPUs, `home` being current, access each other's memory directly, once for all calls. False
 * if they cannot: copies between them then go through the host. */
bool peers_connect(int home, int away);

/* Floats a second that copies from `home`, the current device, to `away` move. The first call measures
 * them, in milliseconds. 0 if that fails; the next call then measures again. */
double peers_floats_a_second(int home, int away);

#endif
