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
#include <numeric>

#include "../base/threads.h"
#include "../base/undisturbed.h"
#include "deferred_async_memory.h"
#include "multiprocessor.h"
#include "runaway.h"

__thread unsigned char *dynamic_shared_bytes;

#ifdef SGEMM_CHECKED
GridCheck grid_check;
#endif

namespace {

constexpr int most_multiprocessors = 256;
constexpr long poll_nanoseconds = 50'000'000;

/* Checkers distinguish OS threads, and a custom kernel may loop until it is interrupted. */
#if defined(SGEMM_CHECKED) || defined(SGEMM_SANITIZED) || defined(SGEMM_STOPPABLE)
constexpr bool calling_thread_may_run = false;
#else
constexpr bool calling_thread_may_run = true;
#endif

/* ThreadSanitizer needs blocks that run concurrently. Other checkers look at one OS thread's static
 * data. */
#ifdef SGEMM_DEFERRED_ASYNC
constexpr int checked_multiprocessors = 1;
#elif defined(SGEMM_CHECKED)
constexpr int checked_multiprocessors = 2;
#endif

/* ------------------------------------------------------------ kept for later launches */

constexpr int shelf_size = 64;
std::atomic<Multiprocessor *> shelf[shelf_size];

size_t stack_stride()
{
    return stack_bytes + static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void free_stacks(Multiprocessor *self)
{
    if (self->stacks) {
        munmap(self->stacks, self->stride * static_cast<size_t>(self->stack_count));
    }
    self->stacks = nullptr;
    self->stack_count = 0;
}

/* Gives the multiprocessor stacks for so many threads, or more. False if there is no memory. */
bool take_stacks(Multiprocessor *self, int threads)
{
    if (threads <= self->stack_count) {
        return true;
    }
    free_stacks(self);
    const int count = threads <= max_block_threads ? max_block_threads : max_threads;
    self->stride = stack_stride();
    void *const stacks =
        mmap(nullptr, self->stride * static_cast<size_t>(count), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        return false;
    }
    self->stacks = static_cast<char *>(stacks);
    self->stack_count = count;
#if defined(SGEMM_CHECKED) || defined(SGEMM_SANITIZED)
    for (int index = 0; index < count; ++index) {
        mprotect(self->stacks + index * self->stride, self->stride - stack_bytes, PROT_NONE);
    }
#endif
    return true;
}

/* Takes a kept multiprocessor, or makes a new one. Returns nullptr if there is no memory. */
Multiprocessor *take_multiprocessor()
{
    for (auto &kept : shelf) {
        if (Multiprocessor *const self = kept.exchange(nullptr)) {
            return self;
        }
    }
    return static_cast<Multiprocessor *>(calloc(1, sizeof(Multiprocessor)));
}

void free_shared_memory(Multiprocessor *self)
{
    for (Block &block : self->blocks) {
        free(block.shared);
        block.shared = nullptr;
        block.shared_capacity = 0;
    }
}

void free_multiprocessor(Multiprocessor *self)
{
    free_shared_memory(self);
    free_stacks(self);
    free(self);
}

/* Frees the kept multiprocessors when the process ends or a custom kernel's library is closed. */
struct ShelfOwner {
    ~ShelfOwner()
    {
        for (auto &kept : shelf) {
            if (Multiprocessor *const self = kept.exchange(nullptr)) {
                free_multiprocessor(self);
            }
        }
    }
} shelf_owner;

void keep_multiprocessor(Multiprocessor *self)
{
    for (auto &kept : shelf) {
        Multiprocessor *empty = nullptr;
        if (kept.compare_exchange_strong(empty, self)) {
            return;
        }
    }
    free_multiprocessor(self);
}

#ifdef SGEMM_CHECKED
/* Shuffles `count` groups of `size` neighbors. */
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

/* Orders the threads. The threads of a warp stay together, because they wait for each other in warp
 * operations. The threads of a block stay together, too. */
void order_threads(Multiprocessor *self)
{
    const int count = self->grid->thread_count, in_block = self->grid->block_threads;
    for (int position = 0; position < count; ++position) {
        self->order[position] = grid_check.order == 1 ? count - 1 - position : position;
    }
    if (grid_check.order > 1) {
        uint64_t state = static_cast<uint64_t>(grid_check.order);
        for (int first = 0; first < count; first += warp_size) {
            shuffle(self->order + first, std::min(warp_size, count - first), 1, &state);
        }
        for (int first = 0; first < count; first += in_block) {
            shuffle(self->order + first, in_block / warp_size, warp_size, &state);
        }
        shuffle(self->order, self->grid->cluster, in_block, &state);
    }
}

/* Assigns clusters round-robin, so that the same multiprocessor always runs a given cluster. */
int64_t next_cluster(Multiprocessor *self)
{
    const int64_t clusters = self->grid->clusters, turn = self->turn, order = grid_check.order;
    self->turn += self->grid->multiprocessors;
    if (turn >= clusters || order <= 1) {
        return turn < clusters && order == 1 ? clusters - 1 - turn : turn;
    }
    int64_t stride = order * 7919 % clusters; /* made coprime, so that every cluster runs once */
    while (std::gcd(stride, clusters) != 1) {
        ++stride;
    }
    return (turn * stride + order) % clusters;
}
#else
int64_t next_cluster(Multiprocessor *self)
{
    return self->grid->next_cluster++;
}

void order_threads(Multiprocessor *self)
{
    for (int position = 0; position < self->grid->thread_count; ++position) {
        self->order[position] = position;
    }
}
#endif

/* In a checking build, the order may differ from launch to launch. */
#ifdef SGEMM_CHECKED
constexpr bool keeps_places = false;
#else
constexpr bool keeps_places = true;
#endif

/* Assigns positions and threadIdx to threads. Keeps the positions of the last launch if its blocks
 * had the same shape: for a small product, assigning takes longer than running the threads. */
void place_threads(Multiprocessor *self)
{
    const Grid *const grid = self->grid;
    const dim3 &extent = grid->threads, &last = self->placed;
    if (keeps_places && self->placed_count == grid->thread_count && last.x == extent.x &&
        last.y == extent.y && last.z == extent.z) {
        return;
    }
    self->placed = extent;
    self->placed_count = grid->thread_count;
    order_threads(self);
    for (int position = 0; position < grid->thread_count; ++position) {
        self->position_of[self->order[position]] = position;
        const auto number = static_cast<unsigned>(self->order[position] % grid->block_threads);
        self->indices[position] = {number % extent.x, number / extent.x % extent.y,
                                   number / extent.x / extent.y};
    }
}

/* ------------------------------------------------------------ the OS threads of one launch */

/* Adds the size of the thread-local data of the library that contains grid_barrier. */
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
    one_by_one = PTHREAD_MUTEX_INITIALIZER; /* its owner does not exist in the child */
});

/* Allocates this thread's __shared__ arrays; false if there is no memory.
 *
 * They are thread-local data of a dynamically loaded library. glibc allocates them with malloc at
 * the first access, and ends the process if that fails. So this allocates the same amount, frees
 * it, and then accesses the data. It relies on malloc returning memory that the same thread has
 * just freed. Threads of launches do this one by one, so only another thread that shares the malloc
 * arena can take the memory in between. Arenas are shared once there are eight times as many
 * threads as cores. */
bool have_shared_arrays()
{
    static size_t bytes;
    constexpr size_t bookkeeping = 1024;
    pthread_mutex_lock(&one_by_one);
    if (bytes == 0) {
        dl_iterate_phdr(add_thread_local_bytes, &bytes);
        bytes += bookkeeping;
    }
    void *volatile const probe = malloc(bytes); /* volatile: otherwise compilers remove the pair */
    const bool there = probe != nullptr;
    free(probe);
    if (there) {
        *const_cast<Multiprocessor *volatile *>(&multiprocessor) = nullptr;
    }
    pthread_mutex_unlock(&one_by_one);
    return there;
}

#ifdef SGEMM_SANITIZED
constexpr size_t dynamic_redzone = 128; /* sanitizer/sanitizer.cpp */
#else
constexpr size_t dynamic_redzone = 0;
#endif

/* Checkers watch the end of shared memory, so each launch allocates its exact size. */
#if defined(SGEMM_CHECKED) || defined(SGEMM_SANITIZED)
constexpr bool keeps_shared_memory = false;
#else
constexpr bool keeps_shared_memory = true;
#endif

bool take_dynamic_shared_memory(const Grid *grid, Multiprocessor *self)
{
    for (int rank = 0; rank < grid->cluster; ++rank) {
        Block *const block = &self->blocks[rank];
        if (block->shared_capacity >= grid->shared_bytes) {
            continue;
        }
        free(block->shared);
        block->shared = nullptr;
        block->shared_capacity = 0;
        void *memory;
        if (posix_memalign(&memory, 1024, grid->shared_bytes + dynamic_redzone) != 0) {
            return false;
        }
        block->shared = static_cast<unsigned char *>(memory);
        block->shared_capacity = grid->shared_bytes;
    }
    return true;
}

void fail_without_memory(Grid *grid)
{
    grid_fail(grid, status_error(STATUS_OUT_OF_MEMORY,
                                 "no memory for a %s of %d CUDA threads on the CPU device",
                                 grid->cluster > 1 ? "cluster" : "block", grid->thread_count));
}

void run_clusters(Multiprocessor *self)
{
    Grid *const grid = self->grid;
    sanitizer_open(&self->host.sanitizer);
    for (int position = 0; position < grid->thread_count; ++position) {
        sanitizer_create(&self->fibers[position].sanitizer,
                         self->stacks + (position + 1) * self->stride - stack_bytes, stack_bytes);
    }
    place_threads(self);
    for (int64_t cluster; !grid->stop && (cluster = next_cluster(self)) < grid->clusters;) {
        run_cluster(self, cluster);
    }
#ifdef SGEMM_CHECKED
    /* ThreadSanitizer can name the line of an access only while its thread exists. */
    pthread_mutex_lock(&grid->mutex);
    ++grid->done;
    pthread_cond_broadcast(&grid->one_done);
    while (grid->done < grid->multiprocessors && !grid->stop) {
        pthread_cond_wait(&grid->one_done, &grid->mutex);
    }
    pthread_mutex_unlock(&grid->mutex);
#endif
    for (int position = 0; position < grid->thread_count; ++position) {
        sanitizer_destroy(&self->fibers[position].sanitizer);
    }
    sanitizer_close();
}

/* Runs clusters until none is left. Call it after the thread's __shared__ arrays are allocated. */
void run_share(Grid *grid)
{
    Multiprocessor *const self = take_multiprocessor();
    if (!self || !take_stacks(self, grid->thread_count)) {
        fail_without_memory(grid);
        if (self) {
            free_multiprocessor(self);
        }
        return;
    }
    self->grid = grid;
    if (!take_dynamic_shared_memory(grid, self)) {
        grid_fail(grid, status_error(
                            STATUS_OUT_OF_MEMORY,
                            "no memory for a block's %zu bytes of shared memory on the CPU device",
                            grid->shared_bytes));
    } else {
        multiprocessor = self;
#ifdef SGEMM_CHECKED
        self->turn = grid->next_cluster + grid->begun++;
        self->chance = static_cast<uint64_t>(grid_check.order);
#endif
        run_clusters(self);
    }
    if (!keeps_shared_memory) {
        free_shared_memory(self);
    }
    if (grid->stop) { /* its threads still wait, so no other launch can use it */
        free_multiprocessor(self);
    } else {
        keep_multiprocessor(self);
    }
}

void *multiprocessor_main(void *argument)
{
    Grid *const grid = static_cast<Grid *>(argument);
    fesetenv(FE_DFL_ENV);
    if (have_shared_arrays()) {
        run_share(grid);
    } else {
        fail_without_memory(grid);
    }
    pthread_mutex_lock(&grid->mutex);
    --grid->running;
    pthread_cond_signal(&grid->one_less);
    pthread_mutex_unlock(&grid->mutex);
    return nullptr;
}

/* Checks each calling thread only once, because its arrays exist until it ends. */
bool caller_has_shared_arrays()
{
    static pthread_key_t known;
    static const bool has_key = pthread_key_create(&known, nullptr) == 0;
    if (has_key && pthread_getspecific(known)) {
        return true;
    }
    if (!have_shared_arrays()) {
        return false;
    }
    if (has_key) {
        pthread_setspecific(known, &known); /* if this fails, the next launch checks again */
    }
    return true;
}

/* Blocks signals during the launch: handlers would run on the small stack of a CUDA thread. */
void run_in_calling_thread(Grid *grid)
{
    if (!caller_has_shared_arrays()) {
        fail_without_memory(grid);
        return;
    }
    Undisturbed before;
    fenv_t environment;
    undisturbed_begin(&before);
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    run_share(grid);
    fesetenv(&environment);
    undisturbed_end(&before);
}

void wait_for_all(Grid *grid, Runaways *runaways, const Interrupt *interrupt)
{
    pthread_mutex_lock(&grid->mutex);
    while (grid->running > 0) {
        timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += poll_nanoseconds;
        until.tv_sec += until.tv_nsec / 1'000'000'000;
        until.tv_nsec %= 1'000'000'000;
        const int result = pthread_cond_timedwait(&grid->one_less, &grid->mutex, &until);
        if (result == ETIMEDOUT && grid->stop) {
            runaways_poll(runaways);
        } else if (result == ETIMEDOUT) {
            pthread_mutex_unlock(&grid->mutex);
            if (interrupt_raised(interrupt)) {
                grid_fail(grid, status_error(STATUS_INTERRUPTED, "interrupted"));
            }
            pthread_mutex_lock(&grid->mutex);
        }
    }
    pthread_mutex_unlock(&grid->mutex);
}

/* Runs the launch on at most this many new OS threads. */
void run_in_threads(Grid *grid, int multiprocessors, const Interrupt *interrupt)
{
    const int wanted = static_cast<int>(
        std::min<int64_t>({grid->clusters, multiprocessors, most_multiprocessors}));
#ifdef SGEMM_CHECKED
    const int least = wanted; /* each OS thread runs its own blocks */
#else
    const int least = calling_thread_may_run ? 0 : std::min(wanted, 1);
#endif
    pthread_t os_threads[most_multiprocessors];
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_grid_begins();
#endif
    grid->multiprocessors = grid->running = wanted;
    int started = 0;
    Status status = status_ok();
    while (started < wanted && status.code == STATUS_OK) {
        status = thread_start(&os_threads[started], multiprocessor_main, grid);
        started += status.code == STATUS_OK;
    }
    pthread_mutex_lock(&grid->mutex);
    grid->running -= wanted - started;
    pthread_mutex_unlock(&grid->mutex);
    if (started < least) {
        grid_fail(grid, status); /* otherwise the launch runs on fewer threads */
    } else if (started == 0 && wanted > 0) {
        run_in_calling_thread(grid);
    }
    Runaways runaways = {os_threads, started, 0};
    wait_for_all(grid, &runaways, interrupt);
    for (int index = 0; index < started; ++index) {
        pthread_join(os_threads[index], nullptr);
    }
    runaways_have_stopped(&runaways);
#ifdef SGEMM_DEFERRED_ASYNC
    deferred_async_grid_ends();
#endif
}

} /* namespace */

void grid_fail(Grid *grid, const Status &status)
{
    pthread_mutex_lock(&grid->mutex);
    if (grid->status.code == STATUS_OK) {
        grid->status = status;
    }
    grid->stop = true;
    pthread_cond_broadcast(&grid->one_done);
    pthread_mutex_unlock(&grid->mutex);
}

/* Returns an error if the CPU device cannot launch the blocks in such clusters. */
static Status check_clusters(int64_t blocks, int block_threads, int cluster)
{
    if (cluster > max_cluster || cluster * block_threads > max_threads) {
        return status_error(STATUS_DEVICE,
                            "a cluster of %d blocks of %d threads cannot be launched on the CPU "
                            "device: use at most %d blocks and %d threads per cluster (a GPU "
                            "takes as many threads in each block)",
                            cluster, block_threads, max_cluster, max_threads);
    }
    if (block_threads % warp_size != 0) {
        return status_error(STATUS_DEVICE,
                            "a cluster's blocks of %d threads cannot be launched on the CPU "
                            "device: use a multiple of %d threads",
                            block_threads, warp_size);
    }
    if (blocks % cluster != 0) {
        return status_error(
            STATUS_DEVICE,
            "%lld blocks cannot be launched in clusters of %d: launch a multiple of "
            "the cluster size",
            static_cast<long long>(blocks), cluster);
    }
    return status_ok();
}

Status run_grid(const AnyKernel &kernel, int64_t blocks, dim3 threads, size_t shared_bytes,
                int cluster, int multiprocessors, const Interrupt *interrupt, int64_t matrices)
{
    const uint64_t block_threads = uint64_t{threads.x} * threads.y * threads.z;
    if (block_threads < 1 || block_threads > max_block_threads) {
        return status_error(STATUS_DEVICE,
                            "a block of %u x %u threads cannot be launched: use 1 to %d threads",
                            threads.x, threads.y, max_block_threads);
    }
    cluster = std::max(cluster, 1);
    if (cluster > 1) {
        const Status status = check_clusters(blocks, static_cast<int>(block_threads), cluster);
        if (status.code != STATUS_OK) {
            return status;
        }
    }
    Grid grid = {};
    grid.kernel = kernel;
    grid.row_clusters = blocks / cluster;
    grid.clusters = grid.row_clusters * matrices;
    grid.cluster = cluster;
    grid.threads = threads;
    grid.block_threads = static_cast<int>(block_threads);
    grid.thread_count = cluster * grid.block_threads;
    grid.shared_bytes = shared_bytes;
#ifdef SGEMM_CHECKED
    multiprocessors = checked_multiprocessors;
    if (grid_check.last_blocks > 0) {
        grid.next_cluster =
            std::max<int64_t>(blocks * matrices - grid_check.last_blocks, 0) / cluster;
    }
#endif
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&grid.one_less, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&grid.one_done, nullptr);
    pthread_mutex_init(&grid.mutex, nullptr);
    if (multiprocessors == in_calling_thread && calling_thread_may_run) {
        run_in_calling_thread(&grid);
    } else {
        run_in_threads(&grid, std::max(multiprocessors, 1), interrupt);
    }
    pthread_cond_destroy(&grid.one_less);
    pthread_cond_destroy(&grid.one_done);
    pthread_mutex_destroy(&grid.mutex);
    return grid.status;
}
