/* Switches between the stacks of a block's threads. */
#ifndef SGEMM_EMULATOR_FIBER_H
#define SGEMM_EMULATOR_FIBER_H

#include <stddef.h>

/* Saves the registers on the current stack and its top in *from, then continues with the context
 * whose top is `to`. Returns when another switch comes back. The floating-point environment is not
 * saved: kernels do not change it. */
extern "C" void fiber_switch(void **from, void *to);

/* Prepares a stack. A switch to the result calls entry(), which must not return. */
void *fiber_prepare(char *stack, size_t bytes, void (*entry)());

#endif
