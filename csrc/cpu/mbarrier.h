/* Barriers that threads arrive at without waiting, and that count bytes as well: mbarriers. Each is 8
 * bytes of shared memory. It goes from phase to phase; a phase is complete when all its arrivals have
 * come and all its bytes, and then the next begins. `line` is the call's place in the kernel. */
#ifndef SGEMM_CPU_MBARRIER_H
#define SGEMM_CPU_MBARRIER_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Makes it a barrier of so many arrivals a phase, in phase 0. Others know once they have met this
 * thread, at __syncthreads(). */
void grid_mbarrier_init(uint64_t *barrier, int arrivals, int line);

/* One arrival. */
void grid_mbarrier_arrive(uint64_t *barrier, int line);

/* The phase has so many bytes more to wait for; then one arrival. */
void grid_mbarrier_arrive_expect(uint64_t *barrier, int bytes, int line);

/* So many of the phase's bytes are there: what an asynchronous copy says. */
void grid_mbarrier_complete_bytes(uint64_t *barrier, int bytes, int line);

/* Until the phase of this parity is complete: returns at once where the present phase has the other. */
void grid_mbarrier_wait(uint64_t *barrier, int parity, int line);

/* The parity of the phase that is not complete. */
int grid_mbarrier_parity(const uint64_t *barrier, int line);

#pragma GCC visibility pop

#endif
