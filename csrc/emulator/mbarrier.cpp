#include "mbarrier.h"

#include <stdio.h>
#include <string.h>

#include "block.h"
#include "deferred_async.h"
#include "fiber_sanitizers.h"

namespace {

constexpr int most = (1 << 20) - 1; /* of arrivals per phase, and of bytes */
constexpr uint64_t mark = 1;        /* distinguishes a barrier from zeros and NaN */

/* The contents of the 8 bytes. */
struct State {
    int arrivals; /* per phase */
    int missing;  /* arrivals left in this phase */
    int bytes;    /* expected minus received in this phase: can be negative */
    int parity;   /* of this phase */
};

void put(uint64_t *barrier, const State &state)
{
    *barrier = static_cast<uint64_t>(state.arrivals) | static_cast<uint64_t>(state.missing) << 20 |
               static_cast<uint64_t>(state.bytes + most) << 40 |
               static_cast<uint64_t>(state.parity) << 61 | mark << 62;
}

bool is_initialized(const uint64_t *barrier)
{
    return reinterpret_cast<uintptr_t>(barrier) % 8 == 0 && *barrier >> 62 == mark;
}

State get(const uint64_t *barrier, int line)
{
    if (!is_initialized(barrier)) {
        block_fail(status_error(
            STATUS_DEVICE, "%s, line %d: %s", thread_name(), line,
            reinterpret_cast<uintptr_t>(barrier) % 8
                ? "the address of an mbarrier must be a multiple of 8"
                : "the mbarrier is not initialized: no mbarrier_init came before, or a barrier of "
                  "the block is missing between mbarrier_init and this line"));
    }
    return {static_cast<int>(*barrier & most), static_cast<int>(*barrier >> 20 & most),
            static_cast<int>(*barrier >> 40 & 0x1fffff) - most,
            static_cast<int>(*barrier >> 61 & 1)};
}

/* If the phase is complete, starts the next one. */
void put_and_wake(uint64_t *barrier, State state)
{
    const bool complete = state.missing == 0 && state.bytes == 0;
    if (complete) {
        state.missing = state.arrivals;
        state.parity ^= 1;
    }
    put(barrier, state);
    if (complete) {
        block_wake(barrier);
    }
}

void count_bytes(State *state, int bytes, int line)
{
    state->bytes += bytes;
    if (state->bytes < -most || state->bytes > most) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: a phase of an mbarrier can count at most %d bytes",
                                thread_name(), line, most));
    }
}

/* The running thread uses the barrier. If another thread initializes it only later, a barrier of
 * the block is missing, and a checker tells it. */
void use(const uint64_t *barrier)
{
#ifdef SGEMM_SANITIZED
    if (!is_initialized(barrier)) {
        block_yield();
    }
#endif
    sanitizer_mbarrier_used(barrier);
}

void describe(const void *what, char *text, size_t bytes)
{
    const State state = get(static_cast<const uint64_t *>(what), 0);
    snprintf(text, bytes, "an mbarrier, which lacks %d arrivals and %d bytes", state.missing,
             state.bytes);
}

} /* namespace */

void grid_mbarrier_init(uint64_t *barrier, int arrivals, int line)
{
    if (arrivals < 1 || arrivals > most) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: an mbarrier of %d arrivals: use 1 to %d",
                                thread_name(), line, arrivals, most));
    }
    put(barrier, {arrivals, arrivals, 0, 0});
    sanitizer_mbarrier_begins(barrier);
}

void grid_mbarrier_arrive(uint64_t *barrier, int line)
{
    grid_mbarrier_arrive_expect(barrier, 0, line);
}

void grid_mbarrier_arrive_expect(uint64_t *barrier, int bytes, int line)
{
    use(barrier);
    State state = get(barrier, line);
    sanitizer_mbarrier_arrives(barrier, state.parity);
    count_bytes(&state, bytes, line);
    if (state.missing == 0) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s arrives at line %d at an mbarrier whose phase already "
                                "has all %d arrivals, but lacks %d bytes",
                                thread_name(), line, state.arrivals, state.bytes));
    }
    --state.missing;
    put_and_wake(barrier, state);
#ifdef SGEMM_CHECKED
    block_yield(); /* others may be faster */
#endif
}

void grid_mbarrier_complete_bytes(uint64_t *barrier, int bytes, int line)
{
    State state = get(barrier, line);
    count_bytes(&state, -bytes, line);
    put_and_wake(barrier, state);
}

int grid_mbarrier_parity(const uint64_t *barrier, int line)
{
    use(barrier);
    return get(barrier, line).parity;
}

/* A thread that need not wait lets the others run. Threads and warps then pass in the same order
 * each time. */
void grid_mbarrier_wait(uint64_t *barrier, int parity, int line)
{
    if (parity != 0 && parity != 1) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: the parity of a phase must be 0 or 1, not %d",
                                thread_name(), line, parity));
    }
    use(barrier);
    if (get(barrier, line).parity != parity) {
        block_yield();
    }
    while (get(barrier, line).parity == parity) {
        block_sleep(barrier, line, describe);
    }
    sanitizer_mbarrier_leaves(barrier, parity);
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_land(barrier, parity);
#endif
}
