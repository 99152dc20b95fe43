/* Threads that copy: a queue of jobs, and a worker for each core but the caller's. */
#ifndef SGEMM_WORKERS_H
#define SGEMM_WORKERS_H

#include <stdbool.h>
#include <stddef.h>

#include "interrupt.h"
#include "status.h"
#include "strided.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A copy between arrays of one shape. `done` is the queue's own. */
typedef struct Job {
    void (*copy)(const Strided *to, const Strided *from); /* as strided_copy does */
    Strided to, from;
    bool done;
} Job;

/* From now on there may be as many workers as keep so many GPUs busy; at first, as keep one. */
void workers_for_gpus(int count);

/* Queues a job, which stays where it is until workers_wait has returned. */
void workers_add(Job *job);

/* Returns once the job is done, and does what waits until then. */
void workers_wait(Job *job);

/* Copies by all workers, and returns when all is done, or soon after the interrupt is raised, which may
 * be NULL: then part of `to` is as it was. */
Status workers_copy(const Strided *to, const Strided *from, const Interrupt *interrupt);

/* Has the system give memory to bytes of fresh memory, by all workers. */
void workers_touch(char *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
