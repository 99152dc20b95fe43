#define _GNU_SOURCE /* clock_gettime */
#include "workers.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "../base/threads.h"

enum { WORKERS_OF_A_GPU = 15, MOST_PARTS = 32, PAGE = 4096, BLOCK_ROWS = 64 };
static const int64_t least_part = 1 << 16, most_part = 1 << 18; /* elements */

/* Waking a thread takes some tens of microseconds, as long as a small product. After a job, half of
 * the workers (or the only one) therefore spin for watch_ns, because a program may soon start its
 * next product; the others spin for moment_ns. After a gap longer than its spin, a worker spins for
 * at most brief_ns until a gap is shorter again. Spinning workers yield to threads with work. Under
 * a cgroup quota, which counts their time, workers do not spin. */
static const int64_t watch_ns = 5000000, brief_ns = 200000, moment_ns = 20000;

/* A bounded lock-free queue (D. Vyukov's design): a cell's sequence number says whether it is free.
 * On 16 cores, a queue with a mutex and a condition variable delivered chunks later, small ones
 * most. */
enum { CELLS = 256 };
typedef struct {
    size_t sequence;
    Job *job;
} Cell;
static Cell cells[CELLS];
static size_t entered __attribute__((aligned(64))), left __attribute__((aligned(64)));

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* to sleep, and to start workers */
static pthread_cond_t added = PTHREAD_COND_INITIALIZER;
static int sleepers, waking;        /* waking: a signaled worker has not looked for a job yet */
static int most = WORKERS_OF_A_GPU; /* workers that the calls so far can use */
static int started_for;             /* the value of `most` when workers were last started */
static int started;                 /* existing workers */

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
        const size_t sequence = __atomic_load_n(&cell->sequence, __ATOMIC_ACQUIRE);
        if (sequence == place / CELLS * 2) {
            if (__atomic_compare_exchange_n(&entered, &place, place + 1, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_RELAXED)) {
                cell->job = job;
                __atomic_store_n(&cell->sequence, sequence + 1, __ATOMIC_SEQ_CST);
                return true;
            }
        } else if (sequence < place / CELLS * 2) {
            return false;
        } else {
            place = __atomic_load_n(&entered, __ATOMIC_RELAXED);
        }
    }
}

/* The oldest job, or NULL. */
static Job *pop(void)
{
    size_t place = __atomic_load_n(&left, __ATOMIC_RELAXED);
    for (;;) {
        Cell *const cell = &cells[place % CELLS];
        const size_t sequence = __atomic_load_n(&cell->sequence, __ATOMIC_SEQ_CST);
        if (sequence == place / CELLS * 2 + 1) {
            if (__atomic_compare_exchange_n(&left, &place, place + 1, false, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED)) {
                Job *const job = cell->job;
                __atomic_store_n(&cell->sequence, sequence + 1, __ATOMIC_RELEASE);
                return job;
            }
        } else if (sequence < place / CELLS * 2 + 1) {
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

/* Wakes one worker, which wakes the next. Waking all would delay the caller. */
static void wake_one(void)
{
    if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST) > 0 &&
        __atomic_exchange_n(&waking, 1, __ATOMIC_SEQ_CST) == 0) {
        pthread_mutex_lock(&mutex);
        if (sleepers > 0) {
            pthread_cond_signal(&added);
        } else {
            /* The last sleeper has found a job meanwhile, so no worker would reset `waking`. */
            __atomic_store_n(&waking, 0, __ATOMIC_SEQ_CST);
        }
        pthread_mutex_unlock(&mutex);
    }
}

/* Waits for a job: spins for at most `longest` ns, then sleeps. *pays: whether the last gap between
 * jobs was shorter than the longest spin. */
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
        job = pop(); /* again, because a job added before `sleepers` rose wakes no one */
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

/* A forked child has no workers, and not the parent's threads that queued the present jobs. */
static void reset_after_fork(void)
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
        watches_forks = watches_forks || pthread_atfork(NULL, NULL, reset_after_fork) == 0;
        const int cores = usable_cores();
        const int workers = cores - 1 < wanted ? cores - 1 : wanted;
        for (; started < workers; ++started) {
            const int64_t spin_ns = usable_cores_have_quota() ? 0
                                    : 2 * started < workers   ? watch_ns
                                                              : moment_ns;
            pthread_t thread;
            if (thread_start(&thread, work, (void *)(intptr_t)spin_ns).code == STATUS_OK) {
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
        Job *const other = pop(); /* this job, or any other queued job */
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
    if (elements < 2 * least_part) { /* too small to share with a worker */
        strided_copy(to, from);
        return status_ok();
    }
    /* Parts span many rows, so that a transposing copy uses every cache line completely. */
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

/* The elements as one row, in the order of their addresses. */
static Strided as_one_row(const Strided *array, int64_t count)
{
    Strided row = *array;
    row.cols = count * array->rows * array->cols;
    row.rows = 1;
    row.col_bytes = element_bytes(array->type);
    return row;
}

Status workers_copy_batch(const Strided *to, const Strided *from, int64_t count,
                          const Interrupt *interrupt)
{
    Strided all_to, all_from;
    const Strided turned_to = strided_transposed(to), turned_from = strided_transposed(from);
    const bool by_rows = strided_join(to, count, &all_to) && strided_join(from, count, &all_from);
    if (by_rows && strided_is_dense(&all_to) && strided_is_dense(&all_from)) {
        all_to = as_one_row(to, count);
        all_from = as_one_row(from, count);
    } else if (!by_rows && !(strided_join(&turned_to, count, &all_to) &&
                             strided_join(&turned_from, count, &all_from))) {
        Strided one_to = *to, one_from = *from;
        Status status = status_ok();
        for (int64_t n = 0; n < count && status.code == STATUS_OK; ++n) {
            status = n > 0 && interrupt_raised(interrupt)
                         ? status_error(STATUS_INTERRUPTED, "interrupted")
                         : workers_copy(&one_to, &one_from, interrupt);
            one_to.data += to->batch_bytes;
            one_from.data += from->batch_bytes;
        }
        return status;
    }
    return workers_copy(&all_to, &all_from, interrupt);
}

/* Writes to each page of row->row_bytes bytes. */
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
        jobs[count].to =
            (Strided){.data = memory + begun, .rows = 1, .cols = 1, .row_bytes = (int64_t)length};
        workers_add(&jobs[count++]);
    }
    for (int index = 0; index < count; ++index) {
        workers_wait(&jobs[index]);
    }
}
