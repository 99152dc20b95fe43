/* A kernel of a user's own may have a loop that never ends, and in which no thread comes to where it
 * would see that its launch is to stop: to a barrier, or to its end. In the library of such a kernel
 * (../custom/) a signal takes it out of there. */
#ifndef SGEMM_CPU_RUNAWAY_H
#define SGEMM_CPU_RUNAWAY_H

#include <pthread.h>

/* The OS threads of a launch that is to stop, and has not yet. */
struct Runaways {
    const pthread_t *os_threads; /* each of which is yet to be joined */
    int count;
    int polls;
};

#ifdef SGEMM_STOPPABLE

#pragma GCC visibility push(hidden)

/* To be called again and again until all have stopped, and then the latter. An OS thread is only taken
 * out of the kernel's own code, since elsewhere it may hold what others need. */
void runaways_poll(Runaways *runaways);
void runaways_have_stopped(const Runaways *runaways);

#pragma GCC visibility pop

#else /* each comes to a barrier or to its end */

static inline void runaways_poll(Runaways *) {}
static inline void runaways_have_stopped(const Runaways *) {}

#endif

#endif
