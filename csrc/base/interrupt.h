/* A callback that can stop a running product. */
#ifndef SGEMM_INTERRUPT_H
#define SGEMM_INTERRUPT_H

#include <stdbool.h>
#include <stddef.h>

/* The calling thread, and no other, polls from time to time; true stops the work early. Other
 * threads use the calling thread's stack meanwhile, so poll must return: it must not end the thread
 * or longjmp. */
typedef struct {
    bool (*poll)(void *context); /* NULL: the work cannot be interrupted */
    void *context;
} Interrupt;

/* True if the work should stop. `interrupt` may be NULL. */
static inline bool interrupt_raised(const Interrupt *interrupt)
{
    return interrupt && interrupt->poll && interrupt->poll(interrupt->context);
}

#endif
