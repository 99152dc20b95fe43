/* mbarriers: barriers that threads arrive at without waiting, and that also count bytes. Each is 8
 * bytes of shared memory. A phase completes when all its arrivals and bytes have come; then the
 * next phase starts. `line` is the calling line of the kernel. */
#ifndef SGEMM_EMULATOR_MBARRIER_H
#define SGEMM_EMULATOR_MBARRIER_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Initializes a barrier with this number of arrivals per phase, in phase 0. Visible to other
 * threads after __syncthreads(). */
void grid_mbarrier_init(uint64_t *barrier, int arrivals, int line);

/* One arrival. */
void grid_mbarrier_arrive(uint64_t *barrier, int line);

/* Adds bytes to wait for to the current phase, then arrives once. */
void grid_mbarrier_arrive_expect(uint64_t *barrier, int bytes, int line);

/* An asynchronous copy reports that bytes of the current phase have arrived. */
void grid_mbarrier_complete_bytes(uint64_t *barrier, int bytes, int line);

/* Waits until the phase of this parity is complete. Returns at once if the current phase has the
 * other parity. */
void grid_mbarrier_wait(uint64_t *barrier, int parity, int line);

/* The parity of the current phase. */
int grid_mbarrier_parity(const uint64_t *barrier, int line);

#pragma GCC visibility pop

#endif
