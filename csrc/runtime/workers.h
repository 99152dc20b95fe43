/* Worker threads that copy: a queue of jobs, and one worker for each core except the caller's. */
#ifndef SGEMM_WORKERS_H
#define SGEMM_WORKERS_H

#include <stdbool.h>
#include <stddef.h>

#include "../base/interrupt.h"
#include "../base/status.h"
#include "strided.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A copy between arrays of the same shape. Only the queue uses `done`. */
typedef struct Job {
    void (*copy)(const Strided *to, const Strided *from); /* strided_copy, for example */
    Strided to, from;
    bool done;
} Job;

/* Allows as many workers as keep `count` GPUs busy. Initially there are enough for one GPU. */
void workers_for_gpus(int count);

/* Queues a job. It must stay in place until workers_wait has returned. */
void workers_add(Job *job);

/* Waits until the job is done; the calling thread runs queued jobs meanwhile. */
void workers_wait(Job *job);

/* Copies with all workers. Stops soon after the interrupt is raised, and then leaves part of `to`
 * unchanged. `interrupt` may be NULL. */
Status workers_copy(const Strided *to, const Strided *from, const Interrupt *interrupt);

/* The same for the matrices of a batch. */
Status workers_copy_batch(const Strided *to, const Strided *from, int64_t count,
                          const Interrupt *interrupt);

/* Faults in the pages of newly mapped memory, with all workers. */
void workers_touch(char *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
