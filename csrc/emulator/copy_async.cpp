#include "grid.h"

#include "deferred_async.h"

#ifdef SGEMM_DEFERRED_ASYNC

void grid_copy_begins(void *to, const void *data, int bytes, int line)
{
    deferred_async_copy(to, data, bytes, line);
}

void grid_copy_commit()
{
    deferred_async_commit();
}

void grid_copy_wait(int left)
{
    deferred_async_wait(left);
}

void grid_copy_arrive(uint64_t *barrier, int line)
{
    deferred_async_attach(barrier, grid_mbarrier_parity(barrier, line));
    grid_mbarrier_arrive(barrier, line);
}

#elif !defined(SGEMM_SANITIZED) /* copies complete at once; the sanitizer has its own */

void grid_copy_commit() {}

void grid_copy_wait(int) {}

void grid_copy_arrive(uint64_t *barrier, int line)
{
    grid_mbarrier_arrive(barrier, line);
}

#endif
