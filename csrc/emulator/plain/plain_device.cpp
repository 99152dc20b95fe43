/* Operations of plain kernels on the CPU device. */
#include <stdint.h>

#include "../block.h"
#include "../fiber_sanitizers.h"

#pragma GCC visibility push(hidden)
extern "C" {
unsigned plain_exchange(unsigned mask, uint64_t mine, uint64_t *all, int line);
void plain_warp_barrier(unsigned mask, int line);
unsigned plain_lanes();
int plain_barrier_count(bool predicate, int line);
uint32_t plain_atomic32(void *address, uint32_t (*next)(uint32_t, uint32_t, uint32_t), uint32_t a,
                        uint32_t b);
uint64_t plain_atomic64(void *address, uint64_t (*next)(uint64_t, uint64_t, uint64_t), uint64_t a,
                        uint64_t b);
[[noreturn]] void plain_fail(const char *what, int line);
}
#pragma GCC visibility pop

unsigned plain_lanes()
{
    return grid_lanes();
}

unsigned plain_exchange(unsigned mask, uint64_t mine, uint64_t *all, int line)
{
    return grid_exchange(mask, mine, all, line);
}

void plain_warp_barrier(unsigned mask, int line)
{
    grid_barrier_of_lanes(mask, line);
}

int plain_barrier_count(bool predicate, int line)
{
    static __thread int counted;
    static __thread unsigned last_round;
    /* Each barrier has another round: the first thread to arrive begins a new count. */
    const unsigned round = block_barrier_round() + 1;
    if (last_round != round) {
        last_round = round;
        counted = 0;
    }
    counted += predicate;
    grid_barrier(line);
    const int count = counted;
    grid_barrier(line);
    return count;
}

/* As in ../emulator/atomics.cpp. */
template <class T>
static inline __attribute__((always_inline)) T exchange(T *address, T (*next)(T, T, T), T a, T b)
{
    const int thread = block_thread();
    sanitizer_atomic_begins(thread, address, sizeof *address);
    T old, fresh;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do {
        fresh = next(old, a, b);
    } while (!__atomic_compare_exchange(address, &old, &fresh, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
    sanitizer_atomic_ends(thread, address);
    return old;
}

uint32_t plain_atomic32(void *address, uint32_t (*next)(uint32_t, uint32_t, uint32_t), uint32_t a,
                        uint32_t b)
{
    return exchange(static_cast<uint32_t *>(address), next, a, b);
}

uint64_t plain_atomic64(void *address, uint64_t (*next)(uint64_t, uint64_t, uint64_t), uint64_t a,
                        uint64_t b)
{
    return exchange(static_cast<uint64_t *>(address), next, a, b);
}

void plain_fail(const char *what, int line)
{
    block_fail(status_error(STATUS_DEVICE, "%s, line %d: %s", thread_name(), line, what));
}
