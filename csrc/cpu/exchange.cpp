#include "exchange.h"

#include <string.h>

#include "fiber_sanitizers.h"

namespace {

/* Puts what `next` makes of what is there. Its own order is total; what else it orders is left to
 * fences. */
template <class T, class Next> T exchange(T *address, const Next &next)
{
    T old;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    for (;;) {
        T fresh = next(old);
        if (__atomic_compare_exchange(address, &old, &fresh, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
            return old;
        }
    }
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
}
