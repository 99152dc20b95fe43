#define _GNU_SOURCE /* sched_getaffinity */
#include "workers.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

enum { MOST_WORKERS = 15, MOST_PARTS = 64, PAGE = 4096 };
enum { WAITING, BEGUN, DONE };
enum { SPINS = 4000 }; /* about as long as a sleeping thread takes to wake */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t added = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static Job *first, *last; /* not begun */
static int sleepers;
static pid_t workers_of; /* the process that has them: a forked child has none */

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Takes a waiting job out of the queue. Locked. */
static void begin(Job *job)
{
    Job **place = &first, *before = NULL;
    while (*place != job) {
        before = *place;
        place = &before->next;
    }
    *place = job->next;
    last = last == job ? before : last;
    job->state = BEGUN;
}

static void perform(Job *job)
{
    if (job->from.data) {
        strided_copy(&job->to, &job->from);
    } else {
        for (int64_t byte = 0; byte < job->to.row_bytes; byte += PAGE) {
            ((volatile char *)job->to.data)[byte] = 0;
        }
    }
    __atomic_store_n(&job->state, DONE, __ATOMIC_RELEASE);
}

static void *work(void *unused)
{
    pthread_mutex_lock(&mutex);
    for (;;) {
        if (first) {
            Job *const job = first;
            begin(job);
            pthread_mutex_unlock(&mutex);
            perform(job);
            pthread_mutex_lock(&mutex);
            pthread_cond_broadcast(&done);
            continue;
        }
        pthread_mutex_unlock(&mutex);
        for (int spin = 0; spin < SPINS && !__atomic_load_n(&first, __ATOMIC_RELAXED); ++spin) {
            pause_briefly();
        }
        pthread_mutex_lock(&mutex);
        if (!first) {
            ++sleepers;
            pthread_cond_wait(&added, &mutex);
            --sleepers;
        }
    }
    return unused;
}

/* One for each core that this thread may use, but its own. Locked. */
static void start(void)
{
    if (workers_of == getpid()) {
        return;
    }
    workers_of = getpid();
    sleepers = 0;
    cpu_set_t cores;
    const int usable = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    /* Signals are for the threads of Python. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int count = 0; count < usable - 1 && count < MOST_WORKERS; ++count) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) == 0) {
            pthread_detach(thread);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void workers_add(Job *job)
{
    job->next = NULL;
    job->state = WAITING;
    pthread_mutex_lock(&mutex);
    start();
    if (last) {
        last->next = job;
    } else {
        __atomic_store_n(&first, job, __ATOMIC_RELAXED);
    }
    last = job;
    if (sleepers) {
        pthread_cond_signal(&added);
    }
    pthread_mutex_unlock(&mutex);
}

void workers_wait(Job *job)
{
    for (int spin = 0; spin < SPINS; ++spin) {
        const int state = __atomic_load_n(&job->state, __ATOMIC_ACQUIRE);
        if (state == DONE) {
            return;
        }
        if (state == WAITING) {
            break;
        }
        pause_briefly();
    }
    pthread_mutex_lock(&mutex);
    if (job->state == WAITING) {
        begin(job);
        pthread_mutex_unlock(&mutex);
        perform(job);
        return;
    }
    while (__atomic_load_n(&job->state, __ATOMIC_ACQUIRE) != DONE) {
        pthread_cond_wait(&done, &mutex);
    }
    pthread_mutex_unlock(&mutex);
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
        jobs[part].to = strided_part(to, row, 0, end - row, to->cols);
        jobs[part].from = strided_part(from, row, 0, end - row, to->cols);
        workers_add(&jobs[part]);
    }
    for (int64_t part = 0; part < parts; ++part) {
        workers_wait(&jobs[part]);
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
        jobs[count].to = (Strided){memory + begun, 1, 1, (int64_t)length, 0, false};
        jobs[count].from.data = NULL;
        workers_add(&jobs[count++]);
    }
    for (int index = 0; index < count; ++index) {
        workers_wait(&jobs[index]);
    }
}
