/* Barriers of a part of the block, which have numbers: bar.sync. */
#ifndef SGEMM_CPU_NAMED_BARRIER_H
#define SGEMM_CPU_NAMED_BARRIER_H

#pragma GCC visibility push(hidden)

/* Waits until so many threads have come to barrier `id`, 1 to 15, from whichever lines: what each has
 * written is there for the others. Whole warps take part. */
void grid_named_barrier(int id, int threads, int line);

#pragma GCC visibility pop

#endif
