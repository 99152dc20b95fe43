/* One interrupt for several threads. Only the calling thread polls the caller's interrupt; all
 * threads read the answer. */
#ifndef SGEMM_SHARED_INTERRUPT_H
#define SGEMM_SHARED_INTERRUPT_H

#include "../base/interrupt.h"

typedef struct {
    Interrupt caller;
    bool raised;
} SharedInterrupt;

static inline bool shared_interrupt_raised(void *context)
{
    SharedInterrupt *const shared = (SharedInterrupt *)context;
    return __atomic_load_n(&shared->raised, __ATOMIC_RELAXED);
}

static inline void shared_interrupt_raise(SharedInterrupt *shared)
{
    __atomic_store_n(&shared->raised, true, __ATOMIC_RELAXED);
}

/* For the calling thread. */
static inline bool shared_interrupt_poll(void *context)
{
    SharedInterrupt *const shared = (SharedInterrupt *)context;
    if (!shared_interrupt_raised(shared) && interrupt_raised(&shared->caller)) {
        shared_interrupt_raise(shared);
    }
    return shared_interrupt_raised(shared);
}

#endif
