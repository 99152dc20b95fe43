/* Direct access between GPUs (peer access) over NVLink or PCI Express. */
#ifndef SGEMM_CUDA_PEERS_H
#define SGEMM_CUDA_PEERS_H

/* Enables peer access in both directions between two GPUs; `home` must be current. If it is
 * impossible, returns false, and copies between the GPUs go through the host. Peer access stays
 * enabled. */
bool peers_connect(int home, int away);

#endif
