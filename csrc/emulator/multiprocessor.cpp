/* Runs the threads of a block, or of a cluster, one at a time. Each runs until it waits or returns;
 * then the next runnable thread follows. */
#include "multiprocessor.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "deferred_async.h"
#include "deferred_async_memory.h"

__thread uint3 threadIdx, blockIdx;
__thread Multiprocessor *multiprocessor;

#ifdef SGEMM_DEFERRED_ASYNC
extern "C" char __start_sgemm_shared[], __stop_sgemm_shared[];
#endif

namespace {

constexpr int returned = 0; /* in place of a line number: the thread has returned */

/* ------------------------------------------------------------------ checking builds */

#ifdef SGEMM_DEFERRED_ASYNC
NOT_SANITIZED void fill_with_NaN(char *first, const char *end)
{
    volatile uint64_t *word = reinterpret_cast<uint64_t *>(first);
    for (; reinterpret_cast<const char *>(const_cast<uint64_t *>(word + 1)) <= end; ++word) {
        *word = UINT64_MAX;
    }
    for (volatile char *byte = reinterpret_cast<volatile char *>(word); byte != end; ++byte) {
        *byte = static_cast<char>(0xff);
    }
}

void poison_dynamic(const Multiprocessor *self, const Block &block)
{
    char *const first = reinterpret_cast<char *>(block.shared);
    fill_with_NaN(first, first + self->grid->shared_bytes);
}

/* On a GPU, shared memory starts with what an earlier block left. Here it starts with NaN. */
void poison_shared_memory(const Multiprocessor *self)
{
    fill_with_NaN(__start_sgemm_shared, __stop_sgemm_shared);
    deferred_async_block_begins();
    for (int rank = 0; rank < self->grid->cluster; ++rank) {
        poison_dynamic(self, self->blocks[rank]);
        deferred_async_shared_begins(self->blocks[rank].shared, self->grid->shared_bytes);
    }
    deferred_async_products_begin();
    deferred_async_memory_of_block_begins();
}

/* A block has ended. Other blocks of the cluster that still read its shared memory get NaN. */
void poison_ended(const Multiprocessor *self)
{
    if (self->grid->cluster > 1) {
        poison_dynamic(self, *self->block);
    }
}
#else
void poison_shared_memory(const Multiprocessor *) {}
void poison_ended(const Multiprocessor *) {}
#endif

#ifdef SGEMM_CHECKED

/* True if a thread that could go on lets the other threads run first: never in order 0, always in
 * order 1, at random in other orders. */
bool others_first(Multiprocessor *self)
{
    self->chance = self->chance * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return grid_check.order == 1 || (grid_check.order > 1 && self->chance >> 63);
}
#else
bool others_first(Multiprocessor *)
{
    return true;
}
#endif

/* ------------------------------------------------------------------ which thread runs */

void go(Fiber *from, Fiber *to)
{
    sanitizer_leave(&from->sanitizer, &to->sanitizer);
    fiber_switch(&from->top, to->top);
    sanitizer_arrive(&from->sanitizer);
}

[[noreturn]] void leave_cluster(Multiprocessor *self)
{
    go(&self->fibers[self->current], &self->host);
    __builtin_unreachable();
}

/* Sets the block of the running thread. */
void become_block(Multiprocessor *self, int rank)
{
    self->block = &self->blocks[rank];
    blockIdx.x = self->first_block + static_cast<unsigned>(rank);
    dynamic_shared_bytes = self->block->shared;
}

void become_thread(Multiprocessor *self, int position)
{
    self->current = position;
    *self->thread_index = self->indices[position];
    if (self->grid->cluster > 1) {
        become_block(self, self->order[position] / self->grid->block_threads);
    }
}

constexpr int bits = 64;

bool may_run(const Multiprocessor *self, unsigned position)
{
    return self->may_run[position / bits] >> position % bits & 1;
}

void let_run(Multiprocessor *self, unsigned position)
{
    self->waits[position].what = nullptr;
    self->may_run[position / bits] |= uint64_t{1} << position % bits;
}

void let_all_run(Multiprocessor *self)
{
    const int count = self->grid->thread_count;
    for (int word = 0; word * bits < count; ++word) {
        const int left = count - word * bits;
        self->may_run[word] = left < bits ? (uint64_t{1} << left) - 1 : ~uint64_t{0};
    }
}

/* Lets all threads of the running thread's block run. */
void let_block_run(Multiprocessor *self)
{
    const int size = self->grid->block_threads, first = self->current / size * size;
    for (int position = first; position < first + size; ++position) {
        let_run(self, static_cast<unsigned>(position));
    }
}

/* The same without the threads that have returned. */
void let_rest_of_block_run(Multiprocessor *self)
{
    const int size = self->grid->block_threads, first = self->current / size * size;
    for (int position = first; position < first + size; ++position) {
        if (self->waits[position].what != &self->returned) {
            let_run(self, static_cast<unsigned>(position));
        }
    }
}

void keep_from_running(Multiprocessor *self, unsigned position)
{
    self->may_run[position / bits] &= ~(uint64_t{1} << position % bits);
}

/* The position of the next runnable thread: searches from this position, then from 0; -1 if there
 * is none. Threads that have not started are runnable, and the search finds them in order. */
int next_to_run(const Multiprocessor *self, unsigned position)
{
    const unsigned count = static_cast<unsigned>(self->grid->thread_count);
    if (position >= count) {
        position = 0;
    }
    unsigned word = position / bits;
    uint64_t found = self->may_run[word] >> position % bits << position % bits;
    for (unsigned left = (count - 1) / bits + 1; !found && left > 0; --left) {
        word = word == (count - 1) / bits ? 0 : word + 1;
        found = self->may_run[word];
    }
    return found ? static_cast<int>(word * bits) + __builtin_ctzll(found) : -1;
}

/* ------------------------------------------------------------------ errors */

/* What a thread does at this line, for messages. */
struct Doing {
    char text[40];
    explicit Doing(int line)
    {
        snprintf(text, sizeof text, line == returned ? "returned" : "waits at line %d", line);
    }
};

/* Errors are formatted in separate functions, so that functions in which threads wait use little
 * stack. A thousand waiting stacks compete for the processor's caches. */
#define OUT_OF_LINE __attribute__((noinline, cold))

[[noreturn]] OUT_OF_LINE void fail_parted(const char *what, int line, int other_thread,
                                          int other_line)
{
    block_fail(status_error(STATUS_DEVICE, "%s: %s %s while %s %s", what, thread_name(),
                            Doing(line).text, thread_name(other_thread), Doing(other_line).text));
}

constexpr const char *parted_block = "a barrier was not reached by the whole block";
constexpr const char *parted_cluster = "a barrier was not reached by the whole cluster";

void describe_block_barrier(const void *what, char *text, size_t bytes)
{
    snprintf(text, bytes, "a barrier of the block that %d threads have reached",
             static_cast<const GroupBarrier *>(what)->arrived);
}

void describe_cluster_barrier(const void *what, char *text, size_t bytes)
{
    snprintf(text, bytes, "a barrier of the cluster that %d threads have reached",
             static_cast<const GroupBarrier *>(what)->arrived);
}

void describe_group(const void *what, char *text, size_t bytes)
{
    const GroupBarrier *const barrier = static_cast<const GroupBarrier *>(what);
    snprintf(text, bytes, "its %s, where %d threads have arrived",
             barrier >= multiprocessor->warpgroups ? "warpgroup" : "warp", barrier->arrived);
}

/* What a thread that cannot run waits for. */
Wait wait_of(const Multiprocessor *self, int position)
{
    const Wait &own = self->waits[position];
    if (own.what) {
        return own;
    }
    const int rank = self->order[position] / self->grid->block_threads;
    const GroupBarrier *const barrier = &self->blocks[rank].barrier;
    return {barrier, barrier->line, describe_block_barrier};
}

/* Call it when no thread can run. Reports what each thread waits for, in order of thread index. */
[[noreturn]] void fail_stuck(Multiprocessor *self)
{
    char text[STATUS_MESSAGE_BYTES];
    const int count = self->grid->thread_count, cluster = self->grid->cluster;
    const unsigned block = self->first_block;
    const auto wait_of_thread = [self](int thread) {
        return wait_of(self, self->position_of[thread]);
    };
    int length = cluster == 1
                     ? snprintf(text, sizeof text, "no thread of block %u can go on", block)
                     : snprintf(text, sizeof text, "no thread of blocks %u to %u can go on", block,
                                block + static_cast<unsigned>(cluster) - 1);
    for (int first = 0, last; first < count && length < static_cast<int>(sizeof text);
         first = last + 1) {
        const Wait wait = wait_of_thread(first);
        for (last = first; last + 1 < count && wait_of_thread(last + 1).what == wait.what &&
                           wait_of_thread(last + 1).line == wait.line;) {
            ++last;
        }
        char missing[120];
        if (wait.line != returned) {
            wait.describe(wait.what, missing, sizeof missing);
        }
        char threads[90];
        if (last == first) {
            snprintf(threads, sizeof threads, "%s", thread_name(first));
        } else if (cluster == 1) {
            snprintf(threads, sizeof threads, "threads %d to %d", first, last);
        } else {
            snprintf(threads, sizeof threads, "%s to %s", thread_name(first), thread_name(last));
        }
        const char *const begins = first == 0 ? ":" : ";";
        length += wait.line == returned
                      ? snprintf(text + length, sizeof text - static_cast<size_t>(length),
                                 "%s %s returned", begins, threads)
                      : snprintf(text + length, sizeof text - static_cast<size_t>(length),
                                 "%s %s wait%s at line %d for %s", begins, threads,
                                 last > first ? "" : "s", wait.line, missing);
    }
    block_fail(status_error(STATUS_DEVICE, "%s", text));
}

/* ------------------------------------------------------------------ switching threads */

void thread_main();

/* Stacks start at different cache lines of their pages. Otherwise a thousand of them would share
 * the few cache sets of one offset in a page. */
Fiber *begin_on_own_stack(Multiprocessor *self, int position)
{
    constexpr size_t line = 64, lines = 64,
                     used = 5; /* cache lines of a page, about as many as a waiting thread uses */
    const size_t unused = static_cast<size_t>(position) * used % lines * line;
    Fiber *const fiber = &self->fibers[position];
    fiber->top = fiber_prepare(self->stacks + (position + 1) * self->stride - stack_bytes,
                               stack_bytes - unused, thread_main);
    return fiber;
}

/* Prefetches the saved registers and innermost frame of the thread that probably runs after the
 * next one. */
void prefetch_stack(const Multiprocessor *self, int position)
{
    constexpr int line = 64, lines = 4;
    const auto top = reinterpret_cast<uintptr_t>(self->fibers[position % max_threads].top);
    for (int index = 0; index < lines; ++index) {
        __builtin_prefetch(reinterpret_cast<const void *>(top + index * line));
    }
}

/* Switches to the next runnable thread from this position on. Starts it if it has not started. */
void go_on_from(Multiprocessor *self, unsigned position)
{
    if (self->grid->stop.load(std::memory_order_relaxed)) {
        leave_cluster(self);
    }
    const int here = self->current, next = next_to_run(self, position);
    if (next < 0) {
        fail_stuck(self);
    } else if (next == self->begun) {
        go(&self->fibers[here], begin_on_own_stack(self, next));
    } else if (next != here) {
        prefetch_stack(self, next + 1);
        become_thread(self, next);
        go(&self->fibers[here], &self->fibers[next]);
    }
}

/* Call it when the running thread has returned or is at a barrier of the block. Fails if its warp
 * waits for it. */
void check_warp_is_together(Multiprocessor *self, unsigned thread, int line)
{
    const GroupBarrier &warp = self->warps[thread / warp_size];
    if (warp.arrived > 0) {
        fail_parted("a warp operation was not reached by the whole warp", line, warp.thread,
                    warp.line);
    }
}

/* True if all threads of the block have arrived at its barrier or have returned. A barrier of a
 * GPU from compute capability 7.0 on does not wait for warps that have returned. */
bool all_are_there(const Multiprocessor *self)
{
    const Block &block = *self->block;
    return block.barrier.arrived + block.returned == self->grid->block_threads;
}

/* Completes the block's barrier, which the warps that have returned do not need. */
void complete_without_returned(Multiprocessor *self)
{
    Block *const block = self->block;
    for (int first = 0; first < self->grid->block_threads; first += warp_size) {
        const int returned = block->returned_of_warp[first / warp_size];
        if (returned != 0 && returned != std::min(warp_size, self->grid->block_threads - first)) {
            const int base = block_thread() / self->grid->block_threads * self->grid->block_threads;
            int gone = base + first, there = gone;
            const auto has_returned = [self](int thread) {
                return self->waits[self->position_of[thread]].what == &self->returned;
            };
            while (!has_returned(gone)) {
                ++gone;
            }
            while (has_returned(there)) {
                ++there;
            }
            block_fail(status_error(
                STATUS_DEVICE, "%s: %s returned while %s waits at line %d, in the same warp",
                parted_block, thread_name(gone), thread_name(there), block->barrier.line));
        }
    }
    block->barrier.arrived = 0;
    ++block->barrier.round;
    let_rest_of_block_run(self);
}

/* Records that the running thread, which is at this position, has returned. */
void end_thread(Multiprocessor *self, int position)
{
    const int thread = self->order[position];
    check_warp_is_together(self, static_cast<unsigned>(thread), returned);
    Block *const block = self->block;
    if (self->cluster.arrived > 0) {
        fail_parted(parted_cluster, returned, self->cluster.thread, self->cluster.line);
    }
    keep_from_running(self, static_cast<unsigned>(position));
    self->waits[position] = {&self->returned, returned, nullptr};
    self->last_returned = block->last_returned = thread;
    sanitizer_barrier_exits(static_cast<int>(block - self->blocks), block->barrier.round);
    ++block->returned_of_warp[thread % self->grid->block_threads / warp_size];
    if (++block->returned == self->grid->block_threads) {
        poison_ended(self);
    } else if (block->barrier.arrived > 0 && all_are_there(self)) {
        complete_without_returned(self);
    }
    if (++self->returned == self->grid->thread_count) {
#ifdef SGEMM_DEFERRED_ASYNC
        deferred_async_block_ends();
#endif
    }
}

/* Runs threads one after another on the same stack, until one waits and keeps the stack. */
void thread_main()
{
    Multiprocessor *const self = multiprocessor;
    const Grid *const grid = self->grid;
    sanitizer_arrive(nullptr);
    for (;;) {
        const int position = self->begun++;
        become_thread(self, position);
        self->waits[position] = {};
        sanitizer_thread_begins();
        grid->kernel.call(grid->kernel.what);
        sanitizer_thread_ends();
        end_thread(self, position);
        if (self->returned == grid->thread_count || grid->stop.load(std::memory_order_relaxed)) {
            leave_cluster(self);
        }
        if (sanitizers_need_own_stack || next_to_run(self, position) != self->begun) {
            go_on_from(self, position);
        }
    }
}

[[noreturn]] OUT_OF_LINE void fail_at_lines(const char *parted, int line, const GroupBarrier &all)
{
    block_fail(status_error(STATUS_DEVICE, "%s: %s waits at line %d, %s at line %d", parted,
                            thread_name(), line, thread_name(all.thread), all.line));
}

const char *name_of_group(int size)
{
    return size == warp_size ? "warp" : "warpgroup";
}

[[noreturn]] OUT_OF_LINE void fail_group_size(int size, int line)
{
    block_fail(status_error(STATUS_DEVICE,
                            "line %d is a %s operation, in a block of %d threads: use a "
                            "multiple of %d",
                            line, name_of_group(size), block_thread_count(), size));
}

[[noreturn]] OUT_OF_LINE void fail_parted_group(int size, int line, int other_thread,
                                                int other_line)
{
    const char *const group = name_of_group(size);
    char parted[80];
    snprintf(parted, sizeof parted, "a %s operation was not reached by the whole %s", group, group);
    fail_parted(parted, line, other_thread, other_line);
}

/* For a thread that cannot run: true if it has returned or waits at a barrier of its block or
 * cluster. */
bool cannot_arrive(const Multiprocessor *self, int position)
{
    const Wait &wait = self->waits[position];
    return !wait.what || wait.line == returned || wait.what == &self->cluster;
}

/* Checks that the running thread arrives at a barrier at the same line as the other threads. The
 * warps of a block may be at different lines: a GPU counts their arrivals. */
void arrive(GroupBarrier *all, const char *parted, int line)
{
    const int thread = block_thread();
    if (all->arrived > 0 && all->line != line) {
        if (parted == parted_cluster || all->thread / warp_size == thread / warp_size) {
            fail_at_lines(parted, line, *all);
        }
        sanitizer_barriers_differ(all->thread, all->line, line);
    }
    all->line = line;
    all->thread = thread;
}

} /* namespace */

void run_cluster(Multiprocessor *self, int64_t cluster)
{
    blockIdx = {};
    self->thread_index = &threadIdx;
    const int64_t row = cluster / self->grid->row_clusters;
    blockIdx.y = static_cast<unsigned>(row);
    self->first_block =
        static_cast<unsigned>((cluster - row * self->grid->row_clusters) * self->grid->cluster);
    self->begun = self->returned = 0;
    for (int rank = 0; rank < self->grid->cluster; ++rank) {
        self->blocks[rank].returned = 0;
        memset(self->blocks[rank].returned_of_warp, 0, sizeof self->blocks[rank].returned_of_warp);
    }
    become_block(self, 0);
    let_all_run(self);
    poison_shared_memory(self);
    sanitizer_block_begins();
    go(&self->host, begin_on_own_stack(self, 0));
    sanitizer_block_ends();
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_memory_of_block_ends();
#endif
}

/* ------------------------------------------------------------------ what threads wait for */

int block_thread()
{
    return multiprocessor->order[multiprocessor->current];
}

int block_thread_count()
{
    return multiprocessor->grid->block_threads;
}

unsigned block_barrier_round()
{
    return multiprocessor->block->barrier.round;
}

bool block_has_stack_at(const void *address)
{
    const Multiprocessor *const self = multiprocessor;
    const auto byte = static_cast<const char *>(address);
    return self && byte >= self->stacks &&
           byte < self->stacks + self->stride * static_cast<size_t>(self->stack_count);
}

const char *thread_name(int thread)
{
    static __thread char texts[2][40];
    static __thread unsigned calls;
    const Grid *const grid = multiprocessor->grid;
    char *const text = texts[++calls % 2u];
    if (grid->cluster == 1) {
        snprintf(text, sizeof texts[0], "thread %d", thread);
    } else {
        snprintf(text, sizeof texts[0], "thread %d of block %u", thread % grid->block_threads,
                 multiprocessor->first_block + static_cast<unsigned>(thread / grid->block_threads));
    }
    return text;
}

void block_fail(const Status &status)
{
    grid_fail(multiprocessor->grid, status);
    leave_cluster(multiprocessor);
}

void block_leave()
{
    leave_cluster(multiprocessor);
}

void block_sleep(const void *what, int line, DescribeWait *describe)
{
    Multiprocessor *const self = multiprocessor;
    keep_from_running(self, self->current);
    self->waits[self->current] = {what, line, describe};
    go_on_from(self, self->current);
}

void block_wake(const void *what)
{
    Multiprocessor *const self = multiprocessor;
    for (int position = 0; position < self->begun; ++position) {
        if (!may_run(self, position) && self->waits[position].what == what) {
            let_run(self, position);
        }
    }
}

void block_yield()
{
    if (others_first(multiprocessor)) {
        go_on_from(multiprocessor, multiprocessor->current + 1);
    }
}

void grid_barrier(int line)
{
    sanitizer_called_from(__builtin_return_address(0));
    Multiprocessor *const self = multiprocessor;
    Block *const block = self->block;
    GroupBarrier *const all = &block->barrier;
    check_warp_is_together(self, static_cast<unsigned>(self->order[self->current]), line);
    arrive(all, parted_block, line);
    const int rank = static_cast<int>(block - self->blocks);
    const unsigned round = all->round;
    sanitizer_barrier_arrives(rank, round);
    ++all->arrived;
    if (!all_are_there(self)) {
        keep_from_running(self, self->current);
        go_on_from(self, self->current);
    } else if (block->returned > 0) {
        complete_without_returned(self);
        go_on_from(self, self->current / block_thread_count() * block_thread_count());
    } else {
        all->arrived = 0;
        ++all->round;
        if (self->grid->cluster == 1) {
            let_all_run(self);
            go_on_from(self, 0);
        } else {
            let_block_run(self);
            go_on_from(self, self->current / block_thread_count() * block_thread_count());
        }
    }
    sanitizer_barrier_leaves(rank, round);
}

void grid_cluster_barrier(int line)
{
    Multiprocessor *const self = multiprocessor;
    if (self->grid->cluster == 1) {
        grid_barrier(line);
        return;
    }
    GroupBarrier *const all = &self->cluster;
    check_warp_is_together(self, static_cast<unsigned>(self->order[self->current]), line);
    if (self->returned > 0) {
        fail_parted(parted_cluster, line, self->last_returned, returned);
    }
    arrive(all, parted_cluster, line);
    const unsigned round = all->round;
    sanitizer_cluster_barrier_arrives(round);
    if (++all->arrived < self->grid->thread_count) {
        block_sleep(all, line, describe_cluster_barrier);
    } else {
        all->arrived = 0;
        ++all->round;
        block_wake(all);
        go_on_from(self, 0);
    }
    sanitizer_cluster_barrier_leaves(round);
}

int grid_cluster_rank()
{
    return static_cast<int>(multiprocessor->block - multiprocessor->blocks);
}

const void *grid_cluster_shared(const void *mine, int rank)
{
    const Multiprocessor *const self = multiprocessor;
    const int cluster = self->grid->cluster;
    if (rank < 0 || rank >= cluster) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s asks for shared memory of block %d of its cluster, which has "
                                "%d blocks, numbered from 0",
                                thread_name(), rank, cluster));
    }
    const uintptr_t offset =
        reinterpret_cast<uintptr_t>(mine) - reinterpret_cast<uintptr_t>(self->block->shared);
    if (offset >= self->grid->shared_bytes) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s maps an address to another block's shared memory, but the "
                                "address is not in its own block's dynamic shared memory",
                                thread_name()));
    }
    const Block &other = self->blocks[rank];
    if (other.returned > 0 && &other != self->block) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s reads shared memory of block %u of its cluster, which may have "
                                "ended: %s returned, and no cluster barrier is between the two",
                                thread_name(), self->first_block + static_cast<unsigned>(rank),
                                thread_name(other.last_returned)));
    }
    return other.shared + offset;
}

void block_synchronize_group(GroupBarrier *barrier, int size, int line, GroupOperation *operation,
                             void *mine)
{
    Multiprocessor *const self = multiprocessor;
    const int thread = block_thread(), first = thread / size * size, here = self->current;
    if (self->grid->block_threads % size != 0) {
        fail_group_size(size, line);
    }
    if (barrier->arrived > 0 && (barrier->line != line || barrier->operation != operation)) {
        fail_parted_group(size, line, barrier->thread, barrier->line);
    }
    /* The previous thread of this warp ran before this one and can no longer arrive. */
    if (here % warp_size > 0 && !may_run(self, here - 1) && cannot_arrive(self, here - 1)) {
        fail_parted_group(size, line, self->order[here - 1], wait_of(self, here - 1).line);
    }
    barrier->line = line;
    barrier->thread = thread;
    barrier->operation = operation;
    self->arguments[thread] = mine;
    if (++barrier->arrived < size) {
        block_sleep(barrier, line, describe_group);
        return;
    }
    barrier->arrived = 0;
    ++barrier->round;
    if (operation) {
        operation(self->arguments + first);
    }
    for (int other = first; other < first + size; ++other) {
        let_run(self, self->position_of[other]);
    }
    go_on_from(self, self->position_of[first] / warp_size * warp_size);
}

void grid_synchronize_warp(int line, GroupOperation *operation, void *mine)
{
    block_synchronize_group(&multiprocessor->warps[block_thread() / warp_size], warp_size, line,
                            operation, mine);
}

void grid_synchronize_warpgroup(int line, GroupOperation *operation, void *mine)
{
    GroupBarrier *const barrier = &multiprocessor->warpgroups[block_thread() / warpgroup_size];
    const int warp = block_thread() / warp_size;
    const unsigned round = barrier->round;
    sanitizer_product_arrives(warp, round);
    block_synchronize_group(barrier, warpgroup_size, line, operation, mine);
    sanitizer_product_leaves(warp, round);
}

void grid_warp_barrier(int line)
{
    const int warp = block_thread() / warp_size;
    const unsigned round = multiprocessor->warps[warp].round;
    sanitizer_warp_barrier_arrives(warp, round);
    grid_synchronize_warp(line, nullptr, nullptr);
    sanitizer_warp_barrier_leaves(warp, round);
}
