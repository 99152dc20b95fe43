/* Makes a GPU current for the calling thread. */
#ifndef SGEMM_CUDA_SESSION_H
#define SGEMM_CUDA_SESSION_H

#include "../../base/status.h"

/* Makes a device current for this thread until session_close, which restores the previous device.
 * Call session_close if this succeeds. Pairs nest. The thread is in relaxed capture mode meanwhile.
 * Fails on an unusable device and in a forked child of a process that used CUDA. */
Status session_open(int index);
void session_close(void);

/* Puts this thread into relaxed capture mode until capture_restore. In the default mode,
 * allocating, freeing, loading a module or querying an event fails while any thread captures a
 * graph, and invalidates that capture. Pairs nest. */
void capture_relax(void);
void capture_restore(void);

/* Fails if this process was forked from one that had used CUDA. Defined in device.cu. */
Status cuda_reachable(void);

#endif
