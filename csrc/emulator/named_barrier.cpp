#include "named_barrier.h"

#include <stdio.h>

#include "block.h"
#include "fiber_sanitizers.h"

namespace {

constexpr int names = 16; /* 0 is __syncthreads() */

/* All fields except the round are 0 if no thread waits, as when a block starts. */
struct NamedBarrier {
    int arrived, threads;
    unsigned round;
};
__thread NamedBarrier barriers[max_cluster][names];

void describe(const void *what, char *text, size_t bytes)
{
    const auto barrier = static_cast<const NamedBarrier *>(what);
    snprintf(text, bytes, "named barrier %d, which %d of %d threads have reached",
             static_cast<int>((barrier - barriers[0]) % names), barrier->arrived, barrier->threads);
}

} /* namespace */

void grid_named_barrier(int id, int threads, int line)
{
    if (id < 1 || id >= names || threads < 1 || threads % warp_size != 0 ||
        threads > block_thread_count()) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: named barrier %d of %d threads: use barriers "
                                "1 to 15 with whole warps of the block, which has %d threads",
                                thread_name(), line, id, threads, block_thread_count()));
    }
    const int rank = grid_cluster_rank();
    NamedBarrier *const barrier = &barriers[rank][id];
    if (barrier->arrived > 0 && barrier->threads != threads) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: named barrier %d has %d threads here, but %d "
                                "for the threads that wait at it",
                                thread_name(), line, id, threads, barrier->threads));
    }
    const unsigned round = barrier->round;
    sanitizer_named_barrier_used(rank, id, round);
    sanitizer_named_barrier_arrives(rank, id, round);
    barrier->threads = threads;
    if (++barrier->arrived < threads) {
        block_sleep(barrier, line, describe);
    } else {
        barrier->arrived = 0;
        ++barrier->round;
        block_wake(barrier);
        block_yield();
    }
    sanitizer_named_barrier_leaves(rank, id, round);
}
