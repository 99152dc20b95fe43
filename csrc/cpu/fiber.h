/* The least that lets a thread of a block wait: leave one stack, go on with another. */
#ifndef SGEMM_CPU_FIBER_H
#define SGEMM_CPU_FIBER_H

#include <stddef.h>

/* Saves this context's registers on its stack and the stack's top in *from, and goes on with the
 * context whose top is `to`. Returns when something switches back. The floating-point environment
 * is not part of a context: kernels do not change it. */
extern "C" void fiber_switch(void **from, void *to);

/* Prepares a stack so that switching to the result calls entry(), which must not return. */
void *fiber_prepare(char *stack, size_t bytes, void (*entry)());

#endif
