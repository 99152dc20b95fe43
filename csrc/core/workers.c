#define _GNU_SOURCE /* sched_getaffinity */
#include "workers.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORKERS = 15, MOST_PARTS = 64, PAGE = 4096 };
enum { WAITING, DONE };

/* Waking takes a thread some tens of microseconds, as long as a small product. So half of the workers
 * look for more work for a while, in which a program comes back with its next product, and all for
 * a moment. Between looks they yield, so that a thread with work need not wait for the core. A worker
 * that is alone, on two cores, is watchful too: while it woke, the caller would gather by itself. */
static const int64_t watch_ns = 5000000, moment_ns = 20000;

/* A bounded queue without a lock (after D. Vyukov's design): a cell's turn says whose it is. */
enum { CELLS = 256 };
typedef struct {
    size_t turn;
    Job *job;
} Cell;
static Cell cells[CELLS];
static size_t entered __attribute__((aligned(64))), left __attribute__((aligned(64)));

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for sleeping, and for starting */
static pthread_cond_t added = PTHREAD_COND_INITIALIZER;
static int sleepers, waking; /* waking: one was called that has not looked yet */
static pid_t workers_of;     /* the process that has them: a forked child has none */

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
    __atomic_store_n(&job->state, DONE, __ATOMIC_RELEASE);
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

/* A job, after as long as it takes. */
static Job *wait_for_job(int64_t watch)
{
    Job *job = pop();
    for (const int64_t end = now_ns() + watch; !job && now_ns() < end; job = pop()) {
        for (int spin = 0; spin < 20; ++spin) {
            pause_briefly();
        }
        sched_yield();
    }
    if (!job) {
        pthread_mutex_lock(&mutex);
        __atomic_fetch_add(&sleepers, 1, __ATOMIC_SEQ_CST);
        while (!(job = pop())) { /* after sleepers has told of this one */
            pthread_cond_wait(&added, &mutex);
            __atomic_store_n(&waking, 0, __ATOMIC_SEQ_CST);
        }
        __atomic_fetch_sub(&sleepers, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&mutex);
        wake_one();
    }
    return job;
}

static void *work(void *watchful)
{
    for (;;) {
        perform(wait_for_job(watchful ? watch_ns : moment_ns));
    }
    return NULL;
}

/* One for each core that this thread may use, but its own. */
static void start(void)
{
    if (__atomic_load_n(&workers_of, __ATOMIC_ACQUIRE) == getpid()) {
        return;
    }
    pthread_mutex_lock(&mutex);
    if (workers_of != getpid()) {
        sleepers = waking = 0;
        cpu_set_t cores;
        const int usable = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
        const int workers = usable - 1 < MOST_WORKERS ? usable - 1 : MOST_WORKERS;
        /* Signals are for the threads of Python. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        for (int count = 0; count < workers; ++count) {
            pthread_t thread;
            void *const watchful = 2 * count < workers ? &mutex : NULL;
            if (pthread_create(&thread, NULL, work, watchful) == 0) {
                pthread_detach(thread);
            }
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        __atomic_store_n(&workers_of, getpid(), __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mutex);
}

void workers_add(Job *job)
{
    start();
    job->state = WAITING;
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
    while (__atomic_load_n(&job->state, __ATOMIC_ACQUIRE) != DONE) {
        Job *const other = pop(); /* that one, or one before it, or somebody's */
        if (other) {
            perform(other);
        } else {
            pause_briefly();
        }
    }
}

void workers_copy(const Strided *to, const Strided *from)
{
    Job jobs[MOST_PARTS];
    const int64_t least = 1 << 16; /* elements that are worth a worker's while */
    int64_t parts = to->cols ? to->rows * to->cols / least : 0;
    parts = parts < to->rows ? parts : to->rows;
    parts = parts < MOST_PARTS ? parts : MOST_PARTS;
    if (parts < 2) {
        strided_copy(to, from);
        return;
    }
    for (int64_t part = 0; part < parts; ++part) {
        const int64_t row = to->rows * part / parts, end = to->rows * (part + 1) / parts;
        jobs[part].copy = strided_copy;
        jobs[part].to = strided_part(to, row, 0, end - row, to->cols);
        jobs[part].from = strided_part(from, row, 0, end - row, to->cols);
        workers_add(&jobs[part]);
    }
    for (int64_t part = 0; part < parts; ++part) {
        workers_wait(&jobs[part]);
    }
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
