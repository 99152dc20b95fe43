/* How calls wait for each other when a GPU's memory is short. */
#ifndef SGEMM_CUDA_TURNS_H
#define SGEMM_CUDA_TURNS_H

#include "../core/interrupt.h"

/* A call that gives all its memory back when it ends takes a turn beside others, and ends it then. It
 * waits for no other call meanwhile. */
void turn_begin(int device);
void turn_end(int device);

/* Waits until no call has a turn, and blocks new turns until turn_end. A call that still finds too
 * little memory fails for good. The caller must not have a turn. False when interrupted. */
bool turn_begin_alone(int device, const Interrupt *interrupt);

#endif
