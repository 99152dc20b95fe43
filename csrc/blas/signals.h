/* Makes signal handlers of this thread wait. A handler that leaves by longjmp would leave a lock
 * behind, or a device that is being opened. */
#ifndef SGEMM_BLAS_SIGNALS_H
#define SGEMM_BLAS_SIGNALS_H

#include <pthread.h>
#include <signal.h>

static inline void signals_hold(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static inline void signals_release(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

#endif
