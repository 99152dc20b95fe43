/* The package's own threads: how many to use, and how to start one. */
#ifndef SGEMM_THREADS_H
#define SGEMM_THREADS_H

#include <pthread.h>
#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts a thread that runs body(argument). The caller must call pthread_join or pthread_detach.
 * The thread blocks all signals, so that the process's other threads handle them, except the
 * signals of its own faults: handlers such as Python's faulthandler still run for these. */
Status thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument);

/* How many threads may compute or copy at a time, at least 1: the `number` of usable_cores_set if
 * it is not 0; otherwise the cores that the calling thread may use, at most `quota` of them. */
int usable_cores(void);

/* Whether a CPU quota counts the time of these threads, so that spinning costs computing time. */
bool usable_cores_have_quota(void);

/* Sets what usable_cores returns: `number`, or, if that is 0, at most `quota`, if that is not 0. */
void usable_cores_set(int number, int quota);

#ifdef __cplusplus
}
#endif
#endif
