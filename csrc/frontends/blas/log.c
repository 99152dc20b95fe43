#define _GNU_SOURCE /* sigset_t */
#include "log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "say.h"
#include "settings.h"
#include "signals.h"

enum { ROWS = 512, SHOWN = 12 };

/* Calls of one shape with the same end. */
typedef struct {
    Entry entry;
    int64_t m, n, k;
    char what[120];
    int64_t calls;
    double seconds;
} Row;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Row rows[ROWS]; /* the last one collects all further shapes */
static int used;
static int64_t calls[2]; /* passed on, and computed here */
static double seconds[2];

static Held held; /* of the thread that has the lock */

static void lock(void)
{
    Held before;
    signals_hold(&before);
    pthread_mutex_lock(&mutex);
    held = before;
}

static void unlock(void)
{
    const Held before = held;
    pthread_mutex_unlock(&mutex);
    signals_release(&before);
}

/* A forked child counts its own calls. */
static void restart(void)
{
    used = 0;
    memset(calls, 0, sizeof calls);
    memset(seconds, 0, sizeof seconds);
    unlock();
}

/* NULL if there is no place for the log. */
static FILE *open_log(void)
{
    FILE *const file = settings()->logfile ? fopen(settings()->logfile, "ae") : NULL;
    return file ? file : say_can() ? stderr : NULL;
}

static void close_log(FILE *file)
{
    if (file == stderr) {
        fflush(file);
    } else {
        fclose(file);
    }
}

static int by_seconds(const void *one, const void *other)
{
    const double a = ((const Row *)one)->seconds, b = ((const Row *)other)->seconds;
    return (a < b) - (a > b);
}

static void print_row(FILE *file, const Row *row)
{
    fprintf(file, "  %10" PRId64 " %12.4f  ", row->calls, row->seconds);
    if (row->m < 0) {
        fprintf(file, "further shapes\n");
        return;
    }
    fprintf(file, "%-20s M=%-6" PRId64 " N=%-6" PRId64 " K=%-6" PRId64 " %s\n",
            entry_names[row->entry], row->m, row->n, row->k, row->what);
}

static void print_summary_to(FILE *file)
{
    fprintf(file,
            "sgemm_kernels: process %d: %" PRId64 " calls computed here (%.4f s), %" PRId64
            " passed on (%.4f s)\n",
            (int)getpid(), calls[1], seconds[1], calls[0], seconds[0]);
    if (used > 0) {
        fprintf(file, "  %10s %12s\n", "calls", "seconds");
    }
    qsort(rows, (size_t)used, sizeof *rows, by_seconds);
    for (int index = 0; index < used && index < SHOWN; ++index) {
        print_row(file, &rows[index]);
    }
    if (used > SHOWN) {
        fprintf(file, "  and %d further rows\n", used - SHOWN);
    }
}

static void print_summary(void)
{
    lock();
    FILE *const file = open_log();
    if (file) {
        print_summary_to(file);
        close_log(file);
    }
    unlock();
}

static void start(void)
{
    pthread_atfork(lock, unlock, restart);
    atexit(print_summary);
}

/* The row for the call; the lock is held. */
static Row *row_of(const Request *request, const char *what)
{
    const int64_t m = request->C.rows, n = request->C.cols, k = request->A.cols;
    for (int index = 0; index < used; ++index) {
        Row *const row = &rows[index];
        if (row->entry == request->entry && row->m == m && row->n == n && row->k == k &&
            strncmp(row->what, what, sizeof row->what - 1) == 0) {
            return row;
        }
    }
    const bool is_last = used >= ROWS - 1;
    Row *const row = &rows[is_last ? ROWS - 1 : used];
    if (!is_last || used < ROWS) {
        *row = (Row){.entry = request->entry, .m = is_last ? -1 : m, .n = n, .k = k};
        snprintf(row->what, sizeof row->what, "%s", is_last ? "" : what);
        ++used;
    }
    return row;
}

void log_note(const Request *request, bool here, const char *what, double duration)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (settings()->log == LOG_NOTHING) {
        return;
    }
    pthread_once(&once, start);
    lock();
    Row *const row = row_of(request, what);
    ++row->calls;
    row->seconds += duration;
    ++calls[here];
    seconds[here] += duration;
    FILE *const file = settings()->log == LOG_CALLS ? open_log() : NULL;
    if (file) {
        fprintf(file,
                "sgemm_kernels: %s M=%" PRId64 " N=%" PRId64 " K=%" PRId64
                " alpha=%g beta=%g: %.6f s, %s\n",
                entry_names[request->entry], request->C.rows, request->C.cols, request->A.cols,
                (double)request->alpha, (double)request->beta, duration, what);
        close_log(file);
    }
    unlock();
}
