/* Threads that copy: a queue of small jobs, and as many workers as the machine has cores for. */
#ifndef SGEMM_WORKERS_H
#define SGEMM_WORKERS_H

#include <stddef.h>

#include "strided.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A copy between arrays of one shape. `state` is the queue's own. */
typedef struct Job {
    void (*copy)(const Strided *to, const Strided *from); /* as strided_copy does */
    Strided to, from;
    int state;
} Job;

/* Queues a job, which stays where it is until workers_wait has returned. */
void workers_add(Job *job);

/* Returns once the job is done, and does what waits until then. */
void workers_wait(Job *job);

/* Copies by all workers, and returns when all is done. */
void workers_copy(const Strided *to, const Strided *from);

/* Has the system give memory to bytes of fresh memory, by all workers. */
void workers_touch(char *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
