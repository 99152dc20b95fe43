/* Makes signal handlers and pthread_cancel wait in this thread. A handler that leaves by longjmp
 * would leave a lock behind, or a device that is being opened. */
#ifndef SGEMM_BLAS_SIGNALS_H
#define SGEMM_BLAS_SIGNALS_H

#include <pthread.h>
#include <signal.h>

/* The thread's state before. */
typedef struct {
    sigset_t signals;
    int cancellation;
} Held;

static inline void signals_hold(Held *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancellation);
    pthread_sigmask(SIG_SETMASK, &all, &before->signals);
}

static inline void signals_release(const Held *before)
{
    pthread_sigmask(SIG_SETMASK, &before->signals, NULL);
    pthread_setcancelstate(before->cancellation, NULL);
}

#endif
