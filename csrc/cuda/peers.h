/* GPUs that reach each other's memory directly, by NVLink or the bus. */
#ifndef SGEMM_CUDA_PEERS_H
#define SGEMM_CUDA_PEERS_H

/* Lets two GPUs, of which `home` is current, reach each other's memory directly; false where they cannot:
 * copies between them go through the host. Once for all calls, and for good. */
bool peers_connect(int home, int away);

#endif
