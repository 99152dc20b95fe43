/* Threads of our own: how many there should be, and how one is started. */
#ifndef SGEMM_THREADS_H
#define SGEMM_THREADS_H

#include <pthread.h>
#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts a thread that runs body(argument); the caller joins or detaches it. Signals sent to the
 * process are for the threads that it had before: the new one blocks all but those that its own faults
 * raise, for which a handler, as Python's faulthandler, is still called. */
Status thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument);

/* Runs body(argument) in the calling thread, with the same signals blocked. */
void thread_without_signals(void (*body)(void *argument), void *argument);

/* How many threads may compute or copy at a time: the number that usable_cores_set was given, or else
 * the cores that the calling thread may use, but no more than `quota` of them. At least 1. */
int usable_cores(void);

/* Whether a quota counts the time of these threads: what they waste they lack later. */
bool usable_cores_have_quota(void);

/* From now on usable_cores is `number`, or where that is 0 at most `quota`, where that is not 0. */
void usable_cores_set(int number, int quota);

#ifdef __cplusplus
}
#endif
#endif
