/* Named barriers of a part of the block: bar.sync. */
#ifndef SGEMM_EMULATOR_NAMED_BARRIER_H
#define SGEMM_EMULATOR_NAMED_BARRIER_H

#pragma GCC visibility push(hidden)

/* Waits until this number of threads, of whole warps, has reached barrier `id` (1 to 15), from any
 * line. Their earlier writes are then visible to each other. */
void grid_named_barrier(int id, int threads, int line);

#pragma GCC visibility pop

#endif
