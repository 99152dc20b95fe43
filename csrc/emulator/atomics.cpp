#include "atomics.h"

#include "block.h"
#include "deferred_async_memory.h"
#include "fiber_sanitizers.h"

#ifdef SGEMM_TSAN
__thread void *sanitizer_knows_nothing;
KeptFibers sanitizer_kept;
#endif
#ifdef SGEMM_SANITIZED
SanitizerHooks sanitizer_hooks;
#endif

namespace {

/* Replaces the value by next(value) and returns the old value. */
template <class T, class Next>
inline __attribute__((always_inline)) T exchange(T *address, const Next &next)
{
    const int thread = block_thread();
    sanitizer_atomic_begins(thread, address, sizeof *address);
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_atomic_begins(address, sizeof *address);
#endif
    T old, fresh;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do {
        fresh = next(old);
    } while (!__atomic_compare_exchange(address, &old, &fresh, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_atomic_ends(address, sizeof *address);
#endif
    sanitizer_atomic_ends(thread, address);
    return old;
}

} /* namespace */

int atomicAdd(int *address, int value)
{
    return static_cast<int>(
        atomicAdd(reinterpret_cast<unsigned *>(address), static_cast<unsigned>(value)));
}

unsigned atomicAdd(unsigned *address, unsigned value)
{
    return exchange(address, [=](unsigned old) { return old + value; });
}

unsigned long long atomicAdd(unsigned long long *address, unsigned long long value)
{
    return exchange(address, [=](unsigned long long old) { return old + value; });
}

float atomicAdd(float *address, float value)
{
    return exchange(address, [=](float old) { return old + value; });
}

unsigned atomicInc(unsigned *address, unsigned last)
{
    return exchange(address, [=](unsigned old) { return old >= last ? 0 : old + 1; });
}

void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    sanitizer_fence(block_thread());
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_fence();
#endif
}
