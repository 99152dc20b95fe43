/* How a caller stops a product that is under way. */
#ifndef SGEMM_INTERRUPT_H
#define SGEMM_INTERRUPT_H

#include <stdbool.h>
#include <stddef.h>

/* Asked from time to time, by the thread that made the call alone; true stops the work early. While it
 * is asked other threads work with what lies on that thread's stack, so poll always returns: it must
 * not end its thread, nor jump out of the call. */
typedef struct {
    bool (*poll)(void *context); /* NULL: nobody can stop it */
    void *context;
} Interrupt;

/* Whether the work shall stop; `interrupt` may be NULL. */
static inline bool interrupt_raised(const Interrupt *interrupt)
{
    return interrupt && interrupt->poll && interrupt->poll(interrupt->context);
}

#endif
