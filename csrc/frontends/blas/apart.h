/* Work in a thread of its own, for callers whose stack is small. */
#ifndef SGEMM_BLAS_APART_H
#define SGEMM_BLAS_APART_H

#include <stdbool.h>

/* Whether less than 256 KB are left of this thread's stack, or the thread runs on another one,
 * which can have any size. */
bool apart_is_needed(void);

/* Runs body(argument) in a new thread and waits for it. Runs it here if no thread can be
 * started. */
void apart_run(void *(*body)(void *), void *argument);

#endif
