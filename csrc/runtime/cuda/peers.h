/* Direct access between GPUs (peer access) over NVLink or PCI Express. */
#ifndef SGEMM_CUDA_PEERS_H
#define SGEMM_CUDA_PEERS_H

/* Enables peer access in both directions between two GPUs; `home` must be current. If it is
 * impossible, returns false, and copies between the GPUs go through the host. Peer access stays
 * enabled. */
bool peers_connect(int home, int away);

/* The rate of copies from `home`, the current device, to `away`, in floats per second. The first
 * call measures it by copying `bytes` of `home`'s memory, which takes milliseconds. Returns 0 if
 * that fails; the next call then measures again. */
double peers_floats_a_second(int home, int away, const void *from, size_t bytes);

#endif
