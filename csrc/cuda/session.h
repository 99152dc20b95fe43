/* A GPU made current for the calling thread. */
#ifndef SGEMM_CUDA_SESSION_H
#define SGEMM_CUDA_SESSION_H

#include "../core/status.h"

/* Makes a device current for this thread until session_close, which is owed after success. What is
 * opened last is closed first, and then is current what was so before. Fails for a lost device, and in
 * a forked child of a process that used CUDA. The thread captures in relaxed mode until then. */
Status session_open(int index);
void session_close(void);

/* Puts this thread into relaxed capture mode until capture_restore. In the default mode, an
 * allocation, a free, a loaded module or a query of an event fails while any thread captures a graph,
 * and ends that capture. Pairs nest. */
void capture_relax(void);
void capture_restore(void);

/* Success, or that CUDA has worked in the process that this one was forked from. In device.cu. */
Status cuda_reachable(void);

#endif
