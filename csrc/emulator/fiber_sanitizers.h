/* Annotations of fibers for AddressSanitizer and ThreadSanitizer. Empty in other builds.
 *
 * To ThreadSanitizer each CUDA thread is a thread. Only barriers, and the start and end of a block,
 * order two of them, so that a missing barrier is a data race. Two details matter. A fiber inherits
 * the order of the fiber that creates it, so the host creates all of them. With a single
 * synchronization object, a thread that leaves a barrier would be ordered after one that has
 * reached the next barrier, so each barrier alternates between two objects. Each block, cluster,
 * warp, named barrier and mbarrier has its own pair.
 *
 * The objects belong to an OS thread, so only fences order blocks of different OS threads. An
 * atomic operation releases what its thread had observed at its last fence. The next fence acquires
 * what an atomic operation has read. */
#ifndef SGEMM_EMULATOR_FIBER_SANITIZERS_H
#define SGEMM_EMULATOR_FIBER_SANITIZERS_H

#include <stddef.h>

#define NOT_SANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

#if defined(SGEMM_ASAN)

#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

struct FiberSanitizer {
    void *fake_stack;
    const void *stack;
    size_t bytes;
};

constexpr bool sanitizers_need_own_stack = true;

static inline void sanitizer_open(FiberSanitizer *host)
{
    pthread_attr_t attributes;
    void *stack;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &host->bytes);
    pthread_attr_destroy(&attributes);
    host->stack = stack;
}
static inline void sanitizer_close() {}
static inline void sanitizer_create(FiberSanitizer *fiber, char *stack, size_t bytes)
{
    *fiber = {nullptr, stack, bytes};
}
static inline void sanitizer_destroy(FiberSanitizer *fiber)
{
    /* The poison of an abandoned thread must not outlive it. */
    __asan_unpoison_memory_region(fiber->stack, fiber->bytes);
}
static inline void sanitizer_leave(FiberSanitizer *from, FiberSanitizer *to)
{
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->bytes);
}
static inline void sanitizer_arrive(FiberSanitizer *self)
{
    __sanitizer_finish_switch_fiber(self ? self->fake_stack : nullptr, nullptr, nullptr);
}

#elif defined(SGEMM_TSAN)

#include <atomic>

extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}

struct FiberSanitizer {
    void *fiber;
};

constexpr bool sanitizers_need_own_stack = true;

/* Only their addresses matter. */
static __thread char block_begin, block_end, known_at_fence[3 * 1024], comes_with_atomic[3 * 1024];

extern __thread void *sanitizer_knows_nothing; /* a fiber that has observed nothing of any block */

/* Creating a fiber takes ThreadSanitizer longer than watching it run, so fibers are reused by later
 * launches. All they have observed is from earlier launches, which this launch follows anyway. No
 * mutex protects them, since it would order two multiprocessors. */
struct KeptFibers {
    std::atomic_flag busy;
    int count;
    void *fibers[2 * 3 * 1024]; /* two multiprocessors (grid.cpp), each with a block or a cluster */
};
extern KeptFibers sanitizer_kept;

static inline void order_release(void *object)
{
    __tsan_release(object);
}
static inline void order_acquire(void *object)
{
    __tsan_acquire(object);
}
static inline void barrier_begins() {}
static inline void sanitizer_open(FiberSanitizer *host)
{
    host->fiber = __tsan_get_current_fiber();
    sanitizer_knows_nothing = __tsan_create_fiber(0);
}
static inline void sanitizer_close()
{
    __tsan_destroy_fiber(sanitizer_knows_nothing);
}
static inline void sanitizer_create(FiberSanitizer *fiber, char *, size_t)
{
    KeptFibers *const kept = &sanitizer_kept;
    while (kept->busy.test_and_set(std::memory_order_acquire)) {
    }
    fiber->fiber = kept->count > 0 ? kept->fibers[--kept->count] : nullptr;
    kept->busy.clear(std::memory_order_release);
    if (!fiber->fiber) {
        fiber->fiber = __tsan_create_fiber(0);
    }
}
static inline void sanitizer_destroy(FiberSanitizer *fiber)
{
    KeptFibers *const kept = &sanitizer_kept;
    while (kept->busy.test_and_set(std::memory_order_acquire)) {
    }
    kept->fibers[kept->count++] = fiber->fiber;
    kept->busy.clear(std::memory_order_release);
}
static inline void sanitizer_leave(FiberSanitizer *, FiberSanitizer *to)
{
    constexpr unsigned without_order = 1;
    __tsan_switch_to_fiber(to->fiber, without_order);
}
static inline void sanitizer_arrive(FiberSanitizer *) {}
static inline void sanitizer_block_begins()
{
    __tsan_release(&block_begin);
}
static inline void sanitizer_block_ends()
{
    __tsan_acquire(&block_end);
}
static inline void sanitizer_thread_begins()
{
    __tsan_acquire(&block_begin);
}
static inline void sanitizer_thread_ends()
{
    __tsan_release(&block_end);
}
/* Releases to one object all that another has acquired. The running thread acquires nothing. */
static inline void sanitizer_pass_on(void *from, void *to)
{
    void *const thread = __tsan_get_current_fiber();
    constexpr unsigned without_order = 1;
    __tsan_switch_to_fiber(sanitizer_knows_nothing, without_order);
    void *const carrier = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(carrier, without_order);
    __tsan_acquire(from);
    __tsan_release(to);
    __tsan_switch_to_fiber(thread, without_order);
    __tsan_destroy_fiber(carrier);
}
static inline void sanitizer_fence(int thread)
{
    __tsan_acquire(&comes_with_atomic[thread]);
    __tsan_release(&known_at_fence[thread]);
}
static inline void sanitizer_atomic_begins(int thread, void *address, size_t)
{
    sanitizer_pass_on(&known_at_fence[thread], address);
}
static inline void sanitizer_atomic_ends(int thread, void *address)
{
    sanitizer_pass_on(address, &comes_with_atomic[thread]);
}

#elif defined(SGEMM_SANITIZED)

#include "sanitizer_hooks.h"

struct FiberSanitizer {};

constexpr bool sanitizers_need_own_stack = false;

static inline void order_release(const void *object)
{
    sanitizer_hooks.release(object);
}
static inline void order_acquire(const void *object)
{
    sanitizer_hooks.acquire(object);
}
static inline void barrier_begins()
{
    sanitizer_hooks.barrier();
}
static inline void sanitizer_open(FiberSanitizer *) {}
static inline void sanitizer_close() {}
static inline void sanitizer_create(FiberSanitizer *, char *, size_t) {}
static inline void sanitizer_destroy(FiberSanitizer *) {}
static inline void sanitizer_leave(FiberSanitizer *, FiberSanitizer *) {}
static inline void sanitizer_arrive(FiberSanitizer *)
{
    sanitizer_hooks.thread_runs();
}
static inline void sanitizer_block_begins()
{
    sanitizer_hooks.block_begins();
}
static inline void sanitizer_block_ends()
{
    sanitizer_hooks.block_ends();
}
static inline void sanitizer_thread_begins()
{
    sanitizer_hooks.thread_runs();
}
static inline void sanitizer_thread_ends() {}
static inline void sanitizer_called_from(const void *returns_to)
{
    sanitizer_hooks.called_from(returns_to);
}
static inline void sanitizer_barriers_differ(int other_thread, int other_line, int line)
{
    sanitizer_hooks.two_barriers(other_thread, other_line, line);
}
static inline void sanitizer_named_barrier_used(int rank, int id, unsigned round)
{
    sanitizer_hooks.named_barrier(rank, id, round);
}
static inline void sanitizer_mbarrier_begins(const void *barrier)
{
    sanitizer_hooks.mbarrier(barrier, true);
}
static inline void sanitizer_mbarrier_used(const void *barrier)
{
    sanitizer_hooks.mbarrier(barrier, false);
}
static inline void sanitizer_fence(int)
{
    sanitizer_hooks.fence();
}
/* Inlined into the function that the kernel calls. */
static inline __attribute__((always_inline)) void sanitizer_atomic_begins(int, void *address,
                                                                          size_t bytes)
{
    sanitizer_hooks.called_from(__builtin_return_address(0));
    sanitizer_hooks.atomic(address, bytes);
}
static inline void sanitizer_atomic_ends(int, void *) {}

#else

struct FiberSanitizer {};

constexpr bool sanitizers_need_own_stack = false;

static inline void sanitizer_open(FiberSanitizer *) {}
static inline void sanitizer_close() {}
static inline void sanitizer_create(FiberSanitizer *, char *, size_t) {}
static inline void sanitizer_destroy(FiberSanitizer *) {}
static inline void sanitizer_leave(FiberSanitizer *, FiberSanitizer *) {}
static inline void sanitizer_arrive(FiberSanitizer *) {}

#endif

#if defined(SGEMM_TSAN) || defined(SGEMM_SANITIZED)
/* Only their addresses matter. */
static __thread char barrier_of_round[8][2], cluster_barrier_of_round[2],
    warp_barrier_of_round[32][2], product_of_round[32][2], named_barrier_of_round[8][16][2];

static inline void sanitizer_barrier_arrives(int rank, unsigned round)
{
    barrier_begins();
    order_release(&barrier_of_round[rank][round % 2]);
}
/* A thread that has returned counts as arrived. */
static inline void sanitizer_barrier_exits(int rank, unsigned round)
{
    order_release(&barrier_of_round[rank][round % 2]);
}
static inline void sanitizer_cluster_barrier_arrives(unsigned round)
{
    order_release(&cluster_barrier_of_round[round % 2]);
}
static inline void sanitizer_barrier_leaves(int rank, unsigned round)
{
    order_acquire(&barrier_of_round[rank][round % 2]);
}
static inline void sanitizer_cluster_barrier_leaves(unsigned round)
{
    order_acquire(&cluster_barrier_of_round[round % 2]);
}
static inline void sanitizer_warp_barrier_arrives(int warp, unsigned round)
{
    order_release(&warp_barrier_of_round[warp][round % 2]);
}
static inline void sanitizer_warp_barrier_leaves(int warp, unsigned round)
{
    order_acquire(&warp_barrier_of_round[warp][round % 2]);
}
/* An instruction for the products of a warpgroup. It is .sync: all threads of a warp have used what
 * they read before, when one of them goes on. */
static inline void sanitizer_product_arrives(int warp, unsigned round)
{
    order_release(&product_of_round[warp][round % 2]);
}
static inline void sanitizer_product_leaves(int warp, unsigned round)
{
    order_acquire(&product_of_round[warp][round % 2]);
}
static inline void sanitizer_named_barrier_arrives(int rank, int id, unsigned round)
{
    order_release(&named_barrier_of_round[rank][id][round % 2]);
}
static inline void sanitizer_named_barrier_leaves(int rank, int id, unsigned round)
{
    order_acquire(&named_barrier_of_round[rank][id][round % 2]);
}
/* The byte of this number is the phase's object. */
static inline void sanitizer_mbarrier_arrives(void *barrier, int parity)
{
    order_release(static_cast<char *>(barrier) + parity);
}
static inline void sanitizer_mbarrier_leaves(void *barrier, int parity)
{
    order_acquire(static_cast<char *>(barrier) + parity);
}
#else
static inline void sanitizer_block_begins() {}
static inline void sanitizer_block_ends() {}
static inline void sanitizer_thread_begins() {}
static inline void sanitizer_thread_ends() {}
static inline void sanitizer_barrier_arrives(int, unsigned) {}
static inline void sanitizer_barrier_exits(int, unsigned) {}
static inline void sanitizer_barrier_leaves(int, unsigned) {}
static inline void sanitizer_cluster_barrier_arrives(unsigned) {}
static inline void sanitizer_cluster_barrier_leaves(unsigned) {}
static inline void sanitizer_warp_barrier_arrives(int, unsigned) {}
static inline void sanitizer_warp_barrier_leaves(int, unsigned) {}
static inline void sanitizer_product_arrives(int, unsigned) {}
static inline void sanitizer_product_leaves(int, unsigned) {}
static inline void sanitizer_named_barrier_arrives(int, int, unsigned) {}
static inline void sanitizer_named_barrier_leaves(int, int, unsigned) {}
static inline void sanitizer_mbarrier_arrives(void *, int) {}
static inline void sanitizer_mbarrier_leaves(void *, int) {}
static inline void sanitizer_fence(int) {}
static inline void sanitizer_atomic_begins(int, void *, size_t) {}
static inline void sanitizer_atomic_ends(int, void *) {}
#endif

#ifndef SGEMM_SANITIZED
static inline void sanitizer_called_from(const void *) {}
static inline void sanitizer_barriers_differ(int, int, int) {}
static inline void sanitizer_named_barrier_used(int, int, unsigned) {}
static inline void sanitizer_mbarrier_begins(const void *) {}
static inline void sanitizer_mbarrier_used(const void *) {}
#endif

#endif
