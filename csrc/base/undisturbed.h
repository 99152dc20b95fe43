/* Keeps signal handlers and pthread_cancel from leaving work in the middle: it may hold locks, and
 * other threads may use the calling thread's stack. */
#ifndef SGEMM_UNDISTURBED_H
#define SGEMM_UNDISTURBED_H

#include <signal.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The calling thread's state before. */
typedef struct {
    sigset_t signals;
    int cancellation;
} Undisturbed;

/* Between these calls, pthread_cancel and all signals wait, except the signals of the thread's own
 * faults: handlers such as Python's faulthandler still run for these. */
void undisturbed_begin(Undisturbed *before);
void undisturbed_end(const Undisturbed *before);

/* A poll for interrupt.h, with an Undisturbed as context. Here the default actions of signals
 * happen, such as the end of the process at Ctrl-C. Handlers still wait. Always returns false. */
bool undisturbed_lets_defaults_act(void *before);

#ifdef __cplusplus
}
#endif
#endif
