/* A custom kernel may loop forever without reaching a barrier or its end, where it would notice
 * that its launch stops. In the library of such a kernel (../custom/), a signal interrupts it. */
#ifndef SGEMM_EMULATOR_RUNAWAY_H
#define SGEMM_EMULATOR_RUNAWAY_H

#include <pthread.h>

/* The OS threads of a launch that has to stop but still runs. */
struct Runaways {
    const pthread_t *os_threads; /* not yet joined */
    int count;
    int polls;
};

#ifdef SGEMM_STOPPABLE

#pragma GCC visibility push(hidden)

/* Call the first repeatedly until all threads have stopped, then the second. An OS thread is
 * interrupted only inside the kernel's own code: elsewhere it may hold locks or other resources. */
void runaways_poll(Runaways *runaways);
void runaways_have_stopped(const Runaways *runaways);

#pragma GCC visibility pop

#else /* each reaches a barrier or its end */

static inline void runaways_poll(Runaways *) {}
static inline void runaways_have_stopped(const Runaways *) {}

#endif

#endif
