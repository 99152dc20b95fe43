#define _GNU_SOURCE /* clock_gettime */
#include "workers.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "threads.h"

enum { WORKERS_OF_A_GPU = 15, MOST_PARTS = 32, PAGE = 4096, BLOCK_ROWS = 64 };
static const int64_t least_part = 1 << 16, most_part = 1 << 18; /* elements */

/* Waking takes a thread some tens of microseconds, as long as a small product. So half of the workers
 * look for more work for a while, in which a program comes back with its next product, and all for
 * a moment. After a gap that outlasted a watch they watch briefly, until a gap is short enough
 * again. Between looks they yield, so that a thread with work need not wait for the core. A worker
 * that is alone, on two cores, is watchful too: while it woke, the caller would gather by itself.
 * Where a cgroup's quota counts their time, none watches. */
static const int64_t watch_ns = 5000000, brief_ns = 200000, moment_ns = 20000;

/* A bounded queue without a lock (after D. Vyukov's design): a cell's turn says whose it is. On 16 cores
 * chunks came through one with a mutex and a condition variable later, most of all small ones. */
enum { CELLS = 256 };
typedef struct {
    size_t turn;
    Job *job;
} Cell;
static Cell cells[CELLS];
static size_t entered __attribute__((aligned(64))), left __attribute__((aligned(64)));

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for sleeping, and for starting */
static pthread_cond_t added = PTHREAD_COND_INITIALIZER;
static int sleepers, waking;        /* waking: one was called that has not looked yet */
static int most = WORKERS_OF_A_GPU; /* workers that calls so far could keep busy, */
static int started_for;             /* for how many they were started, */
static int started;                 /* and how many there are */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* False if the queue is full. */
static bool push(Job *job)
{
    size_t place = __atomic_load_n(&entered, __ATOMIC_RELAXED);
    for (;;) {
        Cell *const cell = &cells[place % CELLS];
        const size_t turn = __atomic_load_n(&cell->turn, __ATOMIC_ACQUIRE);
        if (turn == place / CELLS * 2) {
            if (__atomic_compare_exchange_n(&entered, &place, place + 1, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_RELAXED)) {
                cell->job = job;
                __atomic_store_n(&cell->turn, turn + 1, __ATOMIC_SEQ_CST);
                return true;
            }
        } else if (turn < place / CELLS * 2) {
            return false;
        } else {
            place = __atomic_load_n(&entered, __ATOMIC_RELAXED);
        }
    }
}

/* The job that has waited longest, or NULL. */
static Job *pop(void)
{
    size_t place = __atomic_load_n(&left, __ATOMIC_RELAXED);
    for (;;) {
        Cell *const cell = &cells[place % CELLS];
        const size_t turn = __atomic_load_n(&cell->turn, __ATOMIC_SEQ_CST);
        if (turn == place / CELLS * 2 + 1) {
            if (__atomic_compare_exchange_n(&left, &place, place + 1, false, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED)) {
                Job *const job = cell->job;
                __atomic_store_n(&cell->turn, turn + 1, __ATOMIC_RELEASE);
                return job;
            }
        } else if (turn < place / CELLS * 2 + 1) {
            return NULL;
        } else {
            place = __atomic_load_n(&left, __ATOMIC_RELAXED);
        }
    }
}

static void perform(Job *job)
{
    job->copy(&job->to, &job->from);
    __atomic_store_n(&job->done, true, __ATOMIC_RELEASE);
}

/* Wakes one, which then wakes the next: to wake all would keep the caller. */
static void wake_one(void)
{
    if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST) > 0 &&
        __atomic_exchange_n(&waking, 1, __ATOMIC_SEQ_CST) == 0) {
        pthread_mutex_lock(&mutex);
        if (sleepers > 0) {
            pthread_cond_signal(&added);
        } else {
            /* It found a job before it slept: none is left to take this back. */
            __atomic_store_n(&waking, 0, __ATOMIC_SEQ_CST);
        }
        pthread_mutex_unlock(&mutex);
    }
}

/* A job, after as long as it takes. *pays: whether the last gap was short enough to watch through. */
static Job *wait_for_job(int64_t longest, bool *pays)
{
    for (;;) {
        Job *job = pop();
        const int64_t begin = now_ns();
        const int64_t end = begin + (*pays ? longest : smaller(longest, brief_ns));
        for (; !job && now_ns() < end; job = pop()) {
            for (int spin = 0; spin < 20; ++spin) {
                pause_briefly();
            }
            sched_yield();
        }
        if (job) {
            return job;
        }
        pthread_mutex_lock(&mutex);
        __atomic_fetch_add(&sleepers, 1, __ATOMIC_SEQ_CST);
        job = pop(); /* after sleepers has told of this one */
        if (!job) {
            pthread_cond_wait(&added, &mutex);
            __atomic_store_n(&waking, 0, __ATOMIC_SEQ_CST);
            job = pop();
        }
        __atomic_fetch_sub(&sleepers, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&mutex);
        *pays = now_ns() - begin < longest;
        if (job) {
            wake_one();
            return job;
        }
    }
}

static void *work(void *watch_nanoseconds)
{
    bool pays = true;
    for (;;) {
        perform(wait_for_job((intptr_t)watch_nanoseconds, &pays));
    }
    return NULL;
}

/* A forked child has no workers, and none of its parent's other threads, which have queued jobs. */
static void begin_anew(void)
{
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    added = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    memset(cells, 0, sizeof cells);
    entered = left = 0;
    sleepers = waking = 0;
    started_for = started = 0;
}

static void start(void)
{
    const int wanted = __atomic_load_n(&most, __ATOMIC_RELAXED);
    if (__atomic_load_n(&started_for, __ATOMIC_ACQUIRE) >= wanted) {
        return;
    }
    pthread_mutex_lock(&mutex);
    if (started_for < wanted) {
        static bool watches_forks;
        watches_forks = watches_forks || pthread_atfork(NULL, NULL, begin_anew) == 0;
        const int cores = usable_cores();
        const int workers = cores - 1 < wanted ? cores - 1 : wanted;
        for (; started < workers; ++started) {
            const int64_t rest = usable_cores_have_quota() ? 0
                                 : 2 * started < workers   ? watch_ns
                                                           : moment_ns;
            pthread_t thread;
            if (thread_start(&thread, work, (void *)(intptr_t)rest).code == STATUS_OK) {
                pthread_detach(thread);
            }
        }
        __atomic_store_n(&started_for, wanted, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mutex);
}

void workers_for_gpus(int count)
{
    const int wanted = count * WORKERS_OF_A_GPU;
    int before = __atomic_load_n(&most, __ATOMIC_RELAXED);
    while (before < wanted && !__atomic_compare_exchange_n(&most, &before, wanted, false,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

void workers_add(Job *job)
{
    start();
    job->done = false;
    while (!push(job)) {
        Job *const other = pop();
        if (other) {
            perform(other);
        }
    }
    wake_one();
}

void workers_wait(Job *job)
{
    while (!__atomic_load_n(&job->done, __ATOMIC_ACQUIRE)) {
        Job *const other = pop(); /* that one, or one before it, or somebody's */
        if (other) {
            perform(other);
        } else {
            pause_briefly();
        }
    }
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

Status workers_copy(const Strided *to, const Strided *from, const Interrupt *interrupt)
{
    const int64_t elements = to->rows * to->cols;
    if (elements < 2 * least_part) { /* not worth a worker's while */
        strided_copy(to, from);
        return status_ok();
    }
    /* Parts are many rows high, so that a transposing copy uses all of each cache line. */
    const int64_t part = smaller(most_part, larger(least_part, elements / MOST_PARTS));
    const int64_t rows = smaller(to->rows, larger(BLOCK_ROWS, part / to->cols));
    const int64_t cols = smaller(to->cols, part / rows);
    Job jobs[MOST_PARTS];
    int64_t begun = 0, waited = 0;
    bool stop = false;
    for (int64_t row = 0; row < to->rows && !stop; row += rows) {
        for (int64_t col = 0; col < to->cols && !stop; col += cols) {
            const int64_t high = smaller(rows, to->rows - row);
            const int64_t wide = smaller(cols, to->cols - col);
            if (begun - waited == MOST_PARTS) {
                workers_wait(&jobs[waited++ % MOST_PARTS]);
                stop = interrupt_raised(interrupt);
            }
            Job *const job = &jobs[begun++ % MOST_PARTS];
            job->copy = strided_copy;
            job->to = strided_part(to, row, col, high, wide);
            job->from = strided_part(from, row, col, high, wide);
            workers_add(job);
        }
    }
    while (waited < begun) {
        workers_wait(&jobs[waited++ % MOST_PARTS]);
    }
    return stop ? status_error(STATUS_INTERRUPTED, "interrupted") : status_ok();
}

/* Writes to each page of a row of bytes. */
static void touch(const Strided *row, const Strided *unused)
{
    (void)unused;
    for (int64_t byte = 0; byte < row->row_bytes; byte += PAGE) {
        ((volatile char *)row->data)[byte] = 0;
    }
}

void workers_touch(char *memory, size_t bytes)
{
    Job jobs[MOST_PARTS];
    const size_t huge_page = (size_t)1 << 21;
    const size_t each = (bytes / MOST_PARTS / huge_page + 1) * huge_page;
    int count = 0;
    for (size_t begun = 0; begun < bytes; begun += each) {
        const size_t length = bytes - begun < each ? bytes - begun : each;
        jobs[count].copy = touch;
        jobs[count].to = (Strided){memory + begun, 1, 1, (int64_t)length, 0, false};
        workers_add(&jobs[count++]);
    }
    for (int index = 0; index < count; ++index) {
        workers_wait(&jobs[index]);
    }
}
