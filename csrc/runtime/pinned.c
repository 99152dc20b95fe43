#define _GNU_SOURCE /* MADV_HUGEPAGE */
#include "pinned.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workers.h"

/* Block sizes are 64 bytes x (8 to 15) x a power of two, and all blocks of a slab have the same
 * size. So a block is at most an eighth larger than requested, and a returned block can be reused
 * as it is. */
enum { ALIGNMENT = 64, STEPS = 8, SIZES = STEPS * 33 };

typedef struct Slab Slab;

struct PinnedBlock {
    PinnedBlock *next; /* in the idle list or the returned stack */
    char *memory;
    Slab *slab;
};

struct Slab {
    Slab *next;
    char *memory;
    size_t mapped;   /* bytes, whole pages */
    int size, count; /* size class and number of its blocks */
    int live;        /* blocks in use */
    const Device *device;
    int index; /* the device that pinned it */
    PinnedBlock blocks[];
};

static const size_t page = 4096, huge_page = (size_t)1 << 21;
static const size_t least_slab = (size_t)1 << 18, usual_slab = (size_t)1 << 26;
static const int64_t most_blocks = (int64_t)1 << 24; /* per slab, whose count is an int */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Slab *slabs;
static PinnedBlock *idle[SIZES];
static int64_t blocks_of[SIZES]; /* live and idle */
static int64_t pinned_bytes, live_bytes, limit = INT64_MAX;
static pid_t owner; /* the only process that may pin; its forked children may not */

static PinnedBlock *returned; /* a lock-free stack */

static size_t bytes_of(int size)
{
    return ((size_t)(STEPS + size % STEPS) << (size / STEPS)) * ALIGNMENT;
}

/* The smallest size class that holds `bytes`; SIZES if there is none. */
static int size_for(size_t bytes)
{
    int size = 0;
    while (size < SIZES && bytes_of(size) < bytes) {
        ++size;
    }
    return size;
}

static void lock(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

/* Whether this process may pin. The first process that takes a block becomes the owner; its forked
 * children may not pin. The lock must be held. */
static bool becomes_owner(void)
{
    if (!owner) {
        owner = getpid();
        pthread_atfork(lock, unlock, unlock); /* a child starts with the lock free */
    }
    return owner == getpid();
}

/* Whether this process is the owner. Does not make it one. The lock must be held. */
static bool is_owner(void)
{
    return owner == getpid();
}

/* Moves returned blocks to the idle lists. The lock must be held. */
static void collect(void)
{
    PinnedBlock *block = __atomic_exchange_n(&returned, NULL, __ATOMIC_ACQUIRE);
    while (block) {
        PinnedBlock *const next = block->next;
        const int size = block->slab->size;
        block->next = idle[size];
        idle[size] = block;
        --block->slab->live;
        live_bytes -= (int64_t)bytes_of(size);
        block = next;
    }
}

/* Removes a slab without live blocks from all lists; *place is then the next slab. The lock must be
 * held. */
static void take_out(Slab **place)
{
    Slab *const slab = *place;
    *place = slab->next;
    PinnedBlock **at = &idle[slab->size];
    while (*at) {
        if ((*at)->slab == slab) {
            *at = (*at)->next;
        } else {
            at = &(*at)->next;
        }
    }
    blocks_of[slab->size] -= slab->count;
    pinned_bytes -= (int64_t)slab->mapped;
}

static void unpin(Slab *slab)
{
    while (slab) {
        Slab *const next = slab->next;
        if (slab->device->unpin(slab->index, slab->memory)) {
            munmap(slab->memory, slab->mapped);
        }
        free(slab);
        slab = next;
    }
}

/* Removes slabs without live blocks until at most `most` bytes are pinned, and returns them as a
 * list. The lock must be held. */
static Slab *surplus(int64_t most)
{
    Slab *gone = NULL;
    for (Slab **place = &slabs; *place && pinned_bytes > most;) {
        Slab *const slab = *place;
        if (slab->live) {
            place = &slab->next;
        } else {
            take_out(place);
            slab->next = gone;
            gone = slab;
        }
    }
    return gone;
}

/* Maps memory in whole pages, and in huge pages if it is large enough for one. */
static char *map(size_t bytes)
{
    const size_t slack = bytes >= huge_page ? huge_page : 0;
    char *const all =
        mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        return NULL;
    }
    const size_t skip = slack ? -(uintptr_t)all % huge_page : 0;
    if (skip) {
        munmap(all, skip);
    }
    if (slack > skip) {
        munmap(all + skip + bytes, slack - skip);
    }
    if (slack) {
        madvise(all + skip, bytes, MADV_HUGEPAGE);
    }
    return all + skip;
}

/* A new slab whose first block is in use, or NULL. The caller has already added it to
 * pinned_bytes. */
static Slab *make_slab(const Device *device, int index, int size, int count, size_t mapped)
{
    Slab *const slab = malloc(sizeof *slab + (size_t)count * sizeof *slab->blocks);
    char *const memory = slab ? map(mapped) : NULL;
    if (memory) {
        /* Pinning would fault the pages in too, but in one thread. */
        workers_touch(memory, mapped);
        if (!device->pin(index, memory, mapped)) {
            munmap(memory, mapped);
            free(slab);
            return NULL;
        }
        *slab = (Slab){NULL, memory, mapped, size, count, 1, device, index};
        for (int block = 0; block < count; ++block) {
            slab->blocks[block] =
                (PinnedBlock){NULL, memory + (size_t)block * bytes_of(size), slab};
        }
        return slab;
    }
    free(slab);
    return NULL;
}

/* The number of blocks to add: it doubles the present number, within bounds, so that few calls wait
 * for pinning. */
static int64_t growth(int size)
{
    const int64_t bytes = (int64_t)bytes_of(size);
    const int64_t most = (int64_t)usual_slab > limit / 16 ? (int64_t)usual_slab : limit / 16;
    int64_t count = blocks_of[size];
    count = count < most / bytes ? count : most / bytes;
    count = count < most_blocks ? count : most_blocks;
    count = count > (int64_t)least_slab / bytes ? count : (int64_t)least_slab / bytes;
    return count > 1 ? count : 1;
}

PinnedBlock *pinned_alloc(const Device *device, int index, size_t bytes)
{
    const int size = size_for(bytes);
    if (bytes == 0 || size == SIZES) {
        return NULL;
    }
    Slab *gone = NULL;
    int64_t count = 0;
    size_t mapped = 0;

    lock();
    PinnedBlock *block = NULL;
    if (becomes_owner()) {
        collect();
        block = idle[size];
        if (block) {
            idle[size] = block->next;
            ++block->slab->live;
            live_bytes += (int64_t)bytes_of(size);
            gone = surplus(limit); /* arrays that exceeded a lowered limit may be gone now */
        } else {
            const int64_t one = (int64_t)((bytes_of(size) + page - 1) / page * page);
            gone = surplus(one <= limit ? limit - one : limit);
            /* Live blocks may exceed a limit that was lowered after they were taken. */
            const int64_t available = pinned_bytes < limit ? limit - pinned_bytes : 0;
            count = growth(size);
            count = count <= available / (int64_t)bytes_of(size) ? count : available / one;
            mapped = ((size_t)count * bytes_of(size) + page - 1) / page * page;
            count = (int64_t)mapped <= available ? count : 0;
            mapped = count ? mapped : 0;
            pinned_bytes += (int64_t)mapped;
        }
    }
    unlock();

    unpin(gone);
    if (block || !count) {
        return block;
    }
    Slab *const slab = make_slab(device, index, size, (int)count, mapped);
    lock();
    if (slab) {
        slab->next = slabs;
        slabs = slab;
        blocks_of[size] += count;
        live_bytes += (int64_t)bytes_of(size);
        for (int spare = 1; spare < slab->count; ++spare) {
            slab->blocks[spare].next = idle[size];
            idle[size] = &slab->blocks[spare];
        }
        block = &slab->blocks[0];
    } else {
        pinned_bytes -= (int64_t)mapped;
    }
    unlock();
    return block;
}

void *pinned_memory(const PinnedBlock *block)
{
    return block->memory;
}

void pinned_free(PinnedBlock *block)
{
    if (!block) {
        return;
    }
    block->next = __atomic_load_n(&returned, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&returned, &block->next, block, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}

bool pinned_holds(const void *memory, size_t bytes)
{
    const char *const begin = memory;
    bool holds = false;
    lock();
    for (const Slab *slab = slabs; slab && !holds; slab = slab->next) {
        holds = begin >= slab->memory && begin + bytes <= slab->memory + slab->mapped;
    }
    unlock();
    return holds;
}

PinnedAccount pinned_account(void)
{
    lock();
    if (is_owner()) {
        collect();
    }
    const PinnedAccount account = {live_bytes, pinned_bytes - live_bytes, limit};
    unlock();
    return account;
}

static void unpin_beyond(int64_t most)
{
    Slab *gone = NULL;
    lock();
    if (is_owner()) {
        collect();
        gone = surplus(most);
    }
    unlock();
    unpin(gone);
}

void pinned_set_limit(int64_t bytes)
{
    lock();
    limit = bytes > 0 ? bytes : 0;
    unlock();
    unpin_beyond(bytes);
}

void pinned_empty(void)
{
    unpin_beyond(0);
}
