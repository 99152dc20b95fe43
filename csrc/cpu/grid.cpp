#include "grid.h"

#include <errno.h>
#include <fenv.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "../core/threads.h"
#include "fiber.h"
#include "fiber_sanitizers.h"

__thread uint3 threadIdx, blockIdx;
__thread unsigned char *dynamic_shared_bytes;

#ifdef SGEMM_CHECKED
GridCheck grid_check;
extern "C" char __start_sgemm_shared[], __stop_sgemm_shared[];
#endif

namespace {

constexpr int max_threads = 1024; /* of a block, as on every GPU */
constexpr int warp_size = 32;
constexpr int most_multiprocessors = 256;
constexpr int returned = 0; /* in place of a barrier's line: the thread came to its end */
constexpr long poll_nanoseconds = 50'000'000;

/* Stacks are one page apart: at an exact power of two they would share cache sets. */
#ifdef SGEMM_CHECKED
constexpr size_t stack_bytes = 256 * 1024; /* sanitizers need more, and get a guard page */
#else
constexpr size_t stack_bytes = 64 * 1024;
#endif

struct Grid {
    AnyKernel kernel;
    int64_t blocks;
    dim3 threads;
    int thread_count;
    size_t shared_bytes;
    std::atomic<int64_t> next_block;
    std::atomic<bool> stop;

    pthread_mutex_t mutex;
    pthread_cond_t one_less; /* signalled when a multiprocessor ends */
    int running;             /* multiprocessors */
    Status status;           /* of the first failure */
};

struct Fiber {
    void *top; /* of its stack, while it waits */
    FiberSanitizer sanitizer;
};

/* An OS thread that runs one block after the other. */
struct Multiprocessor {
    Grid *grid;
    char *stacks;
    size_t stride;
    Fiber host; /* the OS thread itself */
    Fiber fibers[max_threads];
    int order[max_threads];     /* thread numbers in the order in which they begin */
    uint3 indices[max_threads]; /* their threadIdx */
    int current;                /* position in order of the thread that runs */
    int begun;                  /* how many threads of the block have begun */
    int line;                   /* where the first thread of this round waits, or `returned` */
    int line_of_thread;         /* which thread that was */
    unsigned round;             /* counts the rounds of the block */

    /* The warp operation that the lanes of the present warp are coming to. */
    int lanes_waiting;        /* how many have come */
    int warp_line;            /* where the first of them waits */
    WarpOperation *operation; /* what it waits for; NULL: a barrier */
    void *lanes[warp_size];   /* what each brought */
    unsigned warp_round;      /* counts the warp operations */
};

__thread Multiprocessor *multiprocessor;

/* ------------------------------------------------------------ stacks, kept for later launches */

constexpr int shelf_size = 64;
std::atomic<char *> shelf[shelf_size];

size_t stack_stride()
{
    return stack_bytes + static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

char *take_stacks(size_t stride)
{
    for (auto &kept : shelf) {
        if (char *const stacks = kept.exchange(nullptr)) {
            return stacks;
        }
    }
    void *const stacks = mmap(nullptr, stride * max_threads, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        return nullptr;
    }
#ifdef SGEMM_CHECKED
    for (int index = 0; index < max_threads; ++index) {
        mprotect(static_cast<char *>(stacks) + index * stride, stride - stack_bytes, PROT_NONE);
    }
#endif
    return static_cast<char *>(stacks);
}

void give_stacks(char *stacks, size_t stride)
{
    for (auto &kept : shelf) {
        char *empty = nullptr;
        if (kept.compare_exchange_strong(empty, stacks)) {
            return;
        }
    }
    munmap(stacks, stride * max_threads);
}

/* ------------------------------------------------------------------ the threads of one block */

void fail(Grid *grid, const Status &status)
{
    pthread_mutex_lock(&grid->mutex);
    if (grid->status.code == STATUS_OK) {
        grid->status = status;
    }
    pthread_mutex_unlock(&grid->mutex);
    grid->stop = true;
}

void go(Fiber *from, Fiber *to)
{
    sanitizer_leave(&from->sanitizer, &to->sanitizer);
    fiber_switch(&from->top, to->top);
    sanitizer_arrive(&from->sanitizer);
}

[[noreturn]] void leave_block(Multiprocessor *self)
{
    go(&self->fibers[self->current], &self->host);
    __builtin_unreachable();
}

void become_thread(Multiprocessor *self, int position)
{
    self->current = position;
    threadIdx = self->indices[position];
}

void report_parted(Multiprocessor *self, int line)
{
    const int thread = self->order[self->current];
    const char *const name = "a barrier was not reached by the whole block";
    if (line == returned) {
        fail(self->grid,
             status_error(STATUS_DEVICE, "%s: thread %d returned while thread %d waits at line %d",
                          name, thread, self->line_of_thread, self->line));
    } else if (self->line == returned) {
        fail(self->grid,
             status_error(STATUS_DEVICE, "%s: thread %d waits at line %d while thread %d returned",
                          name, thread, line, self->line_of_thread));
    } else {
        fail(self->grid,
             status_error(STATUS_DEVICE, "%s: thread %d waits at line %d, thread %d at line %d",
                          name, thread, line, self->line_of_thread, self->line));
    }
}

/* For messages: what a thread at this line of the block, or at its end, does. */
struct Doing {
    char text[40];
    explicit Doing(int line)
    {
        snprintf(text, sizeof text, line == returned ? "returned" : "waits at line %d", line);
    }
};

void report_parted_warp(Multiprocessor *self, int line, int other_position, int other_line)
{
    fail(self->grid, status_error(STATUS_DEVICE,
                                  "a warp operation was not reached by the whole warp: "
                                  "thread %d %s while thread %d %s",
                                  self->order[self->current], Doing(line).text,
                                  self->order[other_position], Doing(other_line).text));
}

/* A round is what happens between two barriers: every thread runs once, in order, and all must
 * come to the same line. Leaves the block if this thread came elsewhere, or if the launch was
 * stopped. */
void arrive_at(Multiprocessor *self, int line)
{
    if (self->lanes_waiting > 0) {
        report_parted_warp(self, line, self->current - self->lanes_waiting, self->warp_line);
    } else if (self->current == 0) {
        self->line = line;
        self->line_of_thread = self->order[0];
        ++self->round;
    } else if (self->line != line) {
        report_parted(self, line);
    }
    if (self->grid->stop.load(std::memory_order_relaxed)) {
        leave_block(self);
    }
}

/* As arrive_at, for a warp operation: between two of them the lanes of a warp run once each, in
 * order, while the other warps of the block wait for their turn. */
void arrive_in_warp(Multiprocessor *self, int line, WarpOperation *operation)
{
    const int lane = self->current % warp_size;
    if (self->grid->thread_count % warp_size != 0) {
        fail(self->grid, status_error(STATUS_DEVICE,
                                      "line %d is a warp operation, in a block of %d threads: "
                                      "launch a multiple of %d",
                                      line, self->grid->thread_count, warp_size));
    } else if (lane == 0) {
        self->warp_line = line;
        self->operation = operation;
    } else if (self->lanes_waiting < lane) {
        report_parted_warp(self, line, self->current - 1, self->line);
    } else if (self->warp_line != line || self->operation != operation) {
        report_parted_warp(self, line, self->current - 1, self->warp_line);
    }
    if (self->grid->stop.load(std::memory_order_relaxed)) {
        leave_block(self);
    }
}

void thread_main();

Fiber *begin_on_own_stack(Multiprocessor *self, int position)
{
    Fiber *const fiber = &self->fibers[position];
    fiber->top = fiber_prepare(self->stacks + (position + 1) * self->stride - stack_bytes,
                               stack_bytes, thread_main);
    return fiber;
}

/* Runs on a stack of its own: one thread after the other, until one waits and takes the stack
 * with it. */
void thread_main()
{
    Multiprocessor *const self = multiprocessor;
    const Grid *const grid = self->grid;
    sanitizer_arrive(nullptr);
    for (;;) {
        const int position = self->begun++;
        become_thread(self, position);
        sanitizer_thread_begins();
        grid->kernel.call(grid->kernel.what);
        sanitizer_thread_ends();
        arrive_at(self, returned);

        const int next = self->current + 1;
        if (next == grid->thread_count) {
            leave_block(self);
        }
        if (next < self->begun) {
            become_thread(self, next);
            go(&self->fibers[next - 1], &self->fibers[next]);
        } else if (sanitizers_need_own_stack) {
            go(&self->fibers[next - 1], begin_on_own_stack(self, next));
        }
    }
}

#ifdef SGEMM_CHECKED
/* Shuffles `count` groups of `size` neighbours. */
void shuffle(int *first, int count, int size, uint64_t *state)
{
    for (int left = count; left > 1; --left) {
        *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
        const int other = static_cast<int>((*state >> 33) % static_cast<unsigned>(left));
        if (other != left - 1) {
            std::swap_ranges(first + other * size, first + (other + 1) * size,
                             first + (left - 1) * size);
        }
    }
}

/* A warp's threads stay together: they meet at warp operations. */
void order_threads(Multiprocessor *self)
{
    const int count = self->grid->thread_count;
    for (int position = 0; position < count; ++position) {
        self->order[position] = grid_check.order == 1 ? count - 1 - position : position;
    }
    if (grid_check.order > 1) {
        uint64_t state = static_cast<uint64_t>(grid_check.order);
        for (int first = 0; first < count; first += warp_size) {
            shuffle(self->order + first, std::min(warp_size, count - first), 1, &state);
        }
        shuffle(self->order, count / warp_size, warp_size, &state);
    }
}

NOT_SANITIZED void fill_with_NaN(volatile char *first, const volatile char *end)
{
    for (; first != end; ++first) {
        *first = static_cast<char>(0xff);
    }
}

/* Shared memory begins with whatever the last block left: here, with NaN. */
void poison_shared_memory(const Grid *grid)
{
    fill_with_NaN(__start_sgemm_shared, __stop_sgemm_shared);
    char *const dynamic = reinterpret_cast<char *>(dynamic_shared_bytes);
    fill_with_NaN(dynamic, dynamic + grid->shared_bytes);
}
#else
void order_threads(Multiprocessor *self)
{
    for (int position = 0; position < self->grid->thread_count; ++position) {
        self->order[position] = position;
    }
}

void poison_shared_memory(const Grid *) {}
#endif

void run_block(Multiprocessor *self, int64_t block)
{
    blockIdx = {static_cast<unsigned>(block), 0, 0};
    self->begun = 0;
    self->lanes_waiting = 0;
    poison_shared_memory(self->grid);
    sanitizer_block_begins();
    go(&self->host, begin_on_own_stack(self, 0));
    sanitizer_block_ends();
}

/* ------------------------------------------------------------------ the OS threads of one launch */

/* Adds the room that the thread-local data of the library around grid_barrier takes. */
int add_thread_local_bytes(dl_phdr_info *library, size_t, void *sum)
{
    const auto code = reinterpret_cast<ElfW(Addr)>(&grid_barrier);
    size_t bytes = 0;
    bool is_ours = false;
    for (int index = 0; index < library->dlpi_phnum; ++index) {
        const ElfW(Phdr) &part = library->dlpi_phdr[index];
        if (part.p_type == PT_TLS) {
            bytes = part.p_memsz + part.p_align;
        } else if (part.p_type == PT_LOAD) {
            is_ours = is_ours || code - library->dlpi_addr - part.p_vaddr < part.p_memsz;
        }
    }
    *static_cast<size_t *>(sum) += is_ours ? bytes : 0;
    return is_ours;
}

pthread_mutex_t one_by_one = PTHREAD_MUTEX_INITIALIZER;
const int watches_forks = pthread_atfork(nullptr, nullptr, [] {
    one_by_one = PTHREAD_MUTEX_INITIALIZER; /* who held it is not in the child */
});

/* Has this thread's instance of __shared__ arrays allocated, or returns false.
 *
 * They are thread-local data of a library that was loaded later, which glibc allocates by malloc when
 * a thread first touches them, and for which it ends the process if there is none. So as much is asked
 * of malloc first, and given back, just before the touch. That rests on malloc giving a thread again
 * what the same thread has just freed: nobody else takes it meanwhile, since threads of launches come
 * here one by one, except for a thread outside of this library that shares the arena, which happens
 * with eight times as many threads as cores, and allocates in that very moment. */
bool have_shared_arrays()
{
    static size_t bytes;
    constexpr size_t bookkeeping = 1024;
    pthread_mutex_lock(&one_by_one);
    if (bytes == 0) {
        dl_iterate_phdr(add_thread_local_bytes, &bytes);
        bytes += bookkeeping;
    }
    void *volatile const room = malloc(bytes); /* volatile: compilers leave such a pair out */
    const bool there = room != nullptr;
    free(room);
    if (there) {
        *const_cast<Multiprocessor *volatile *>(&multiprocessor) = nullptr;
    }
    pthread_mutex_unlock(&one_by_one);
    return there;
}

/* Not kept for later: each launch may want another size, and checkers watch its end. */
bool take_dynamic_shared_memory(size_t bytes)
{
    void *memory = nullptr;
    if (bytes && posix_memalign(&memory, 128, bytes) != 0) {
        return false;
    }
    dynamic_shared_bytes = static_cast<unsigned char *>(memory);
    return true;
}

void run_blocks(Multiprocessor *self)
{
    Grid *const grid = self->grid;
    sanitizer_open(&self->host.sanitizer);
    for (int position = 0; position < grid->thread_count; ++position) {
        sanitizer_create(&self->fibers[position].sanitizer,
                         self->stacks + (position + 1) * self->stride - stack_bytes, stack_bytes);
    }
    order_threads(self);
    for (int position = 0; position < grid->thread_count; ++position) {
        const unsigned number = static_cast<unsigned>(self->order[position]);
        const dim3 &extent = grid->threads;
        self->indices[position] = {number % extent.x, number / extent.x % extent.y,
                                   number / extent.x / extent.y};
    }
    for (int64_t block; !grid->stop && (block = grid->next_block++) < grid->blocks;) {
        run_block(self, block);
    }
    for (int position = 0; position < grid->thread_count; ++position) {
        sanitizer_destroy(&self->fibers[position].sanitizer);
    }
}

/* Whatever the caller's thread was set to: numbers that some library flushes to zero, or traps. */
void *multiprocessor_main(void *argument)
{
    Grid *const grid = static_cast<Grid *>(argument);
    fesetenv(FE_DFL_ENV);
    Multiprocessor *const self =
        have_shared_arrays() ? static_cast<Multiprocessor *>(calloc(1, sizeof *self)) : nullptr;
    char *const stacks = self ? take_stacks(stack_stride()) : nullptr;
    if (!stacks) {
        fail(grid, status_error(STATUS_OUT_OF_MEMORY,
                                "no memory for a block of %d CUDA threads on the CPU device",
                                grid->thread_count));
    } else if (!take_dynamic_shared_memory(grid->shared_bytes)) {
        fail(grid,
             status_error(STATUS_OUT_OF_MEMORY,
                          "no memory for a block's %zu bytes of shared memory on the CPU device",
                          grid->shared_bytes));
    } else {
        multiprocessor = self;
        self->grid = grid;
        self->stacks = stacks;
        self->stride = stack_stride();
        run_blocks(self);
        free(dynamic_shared_bytes);
    }
    if (stacks) {
        give_stacks(stacks, stack_stride());
    }
    free(self);
    pthread_mutex_lock(&grid->mutex);
    --grid->running;
    pthread_cond_signal(&grid->one_less);
    pthread_mutex_unlock(&grid->mutex);
    return nullptr;
}

void wait_for_all(Grid *grid, const Interrupt *interrupt)
{
    pthread_mutex_lock(&grid->mutex);
    while (grid->running > 0) {
        timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += poll_nanoseconds;
        until.tv_sec += until.tv_nsec / 1'000'000'000;
        until.tv_nsec %= 1'000'000'000;
        const int result = pthread_cond_timedwait(&grid->one_less, &grid->mutex, &until);
        if (result == ETIMEDOUT && !grid->stop) {
            pthread_mutex_unlock(&grid->mutex);
            if (interrupt_raised(interrupt)) {
                fail(grid, status_error(STATUS_INTERRUPTED, "interrupted"));
            }
            pthread_mutex_lock(&grid->mutex);
        }
    }
    pthread_mutex_unlock(&grid->mutex);
}

} /* namespace */

/* Has the thread at another position go on, which waits or is the next to begin. */
static void pass_on(Multiprocessor *self, int next)
{
    const int position = self->current;
    if (next == self->begun) {
        go(&self->fibers[position], begin_on_own_stack(self, next));
    } else if (next != position) {
        become_thread(self, next);
        go(&self->fibers[position], &self->fibers[next]);
    }
}

void grid_barrier(int line)
{
    Multiprocessor *const self = multiprocessor;
    const int position = self->current;
    arrive_at(self, line);
    const unsigned round = self->round;
    sanitizer_barrier_arrives(round);
    pass_on(self, position + 1 == self->grid->thread_count ? 0 : position + 1);
    sanitizer_barrier_leaves(round);
}

void grid_meet_warp(int line, WarpOperation *operation, void *mine)
{
    Multiprocessor *const self = multiprocessor;
    const int position = self->current;
    arrive_in_warp(self, line, operation);
    self->lanes[self->order[position] % warp_size] = mine;
    if (++self->lanes_waiting < warp_size) {
        pass_on(self, position + 1);
    } else {
        self->lanes_waiting = 0;
        ++self->warp_round;
        if (operation) {
            operation(self->lanes);
        }
        pass_on(self, position + 1 - warp_size);
    }
}

void grid_warp_barrier(int line)
{
    const int warp = multiprocessor->current / warp_size;
    const unsigned round = multiprocessor->warp_round;
    sanitizer_warp_barrier_arrives(warp, round);
    grid_meet_warp(line, nullptr, nullptr);
    sanitizer_warp_barrier_leaves(warp, round);
}

Status run_grid(const AnyKernel &kernel, int64_t blocks, dim3 threads, size_t shared_bytes,
                int multiprocessors, const Interrupt *interrupt)
{
    Grid grid = {};
    grid.kernel = kernel;
    grid.blocks = blocks;
    grid.threads = threads;
    grid.thread_count = static_cast<int>(threads.x * threads.y * threads.z);
    grid.shared_bytes = shared_bytes;
#ifdef SGEMM_CHECKED
    multiprocessors = 1;
    if (grid_check.last_blocks > 0) {
        grid.next_block = std::max<int64_t>(blocks - grid_check.last_blocks, 0);
    }
#endif
    const int wanted =
        static_cast<int>(std::min<int64_t>({blocks, multiprocessors, most_multiprocessors}));
    pthread_t os_threads[most_multiprocessors];
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&grid.one_less, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&grid.mutex, nullptr);

    grid.running = wanted;
    int started = 0;
    Status status = status_ok();
    while (started < wanted && status.code == STATUS_OK) {
        status = thread_start(&os_threads[started], multiprocessor_main, &grid);
        started += status.code == STATUS_OK;
    }
    pthread_mutex_lock(&grid.mutex);
    grid.running -= wanted - started;
    pthread_mutex_unlock(&grid.mutex);
    if (started == 0 && wanted > 0) {
        fail(&grid, status); /* with fewer than wanted the launch only takes longer */
    }
    wait_for_all(&grid, interrupt);
    for (int index = 0; index < started; ++index) {
        pthread_join(os_threads[index], nullptr);
    }
    pthread_cond_destroy(&grid.one_less);
    pthread_mutex_destroy(&grid.mutex);
    return grid.status;
}
