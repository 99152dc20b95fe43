/* Checks the copies of strided.c and the queue of workers.c without Python, so that sanitizers can
 * watch.
 *
 *   workers                  all checks
 *   workers --planted NAME   with a bug in the caller, which a sanitizer should find:
 *       early   reads a job's output before it waits for the job
 *       gone    waits only for its first job, then frees all of them */
#define _GNU_SOURCE /* cpu_set_t */
#include "../../csrc/runtime/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ELEMENT = 4 };
typedef void Copy(const Strided *to, const Strided *from);

static _Noreturn void give_up(const char *what, const Strided *to, const Strided *from)
{
    printf("wrong: %s, %d x %d, from %p by %d and %d bytes to %p by %d and %d bytes\n", what,
           (int)to->rows, (int)to->cols, (void *)from->data, (int)from->row_bytes,
           (int)from->col_bytes, (void *)to->data, (int)to->row_bytes, (int)to->col_bytes);
    exit(1);
}

/* Pretends to have eight cores, whatever this machine has. */
int sched_getaffinity(pid_t process, size_t size, cpu_set_t *cores)
{
    (void)process;
    CPU_ZERO_S(size, cores);
    for (int core = 0; core < 8; ++core) {
        CPU_SET_S(core, size, cores);
    }
    return 0;
}

/* ------------------------------------------------------------------ copies */

/* Signaling NaNs among other bits; a copy must change none of them. */
static void fill(char *memory, size_t bytes, uint32_t seed)
{
    for (size_t byte = 0; byte < bytes; ++byte) {
        seed = seed * 1664525 + 1013904223;
        memory[byte] = (char)(byte % 16 == 2 ? 0xa0 : byte % 16 == 3 ? 0x7f : seed >> 24);
    }
}

static size_t span(const Strided *array)
{
    return array->rows && array->cols ? (size_t)((array->rows - 1) * llabs(array->row_bytes) +
                                                 (array->cols - 1) * llabs(array->col_bytes)) +
                                            ELEMENT
                                      : 0;
}

/* The array with its data placed in span() bytes of memory. */
static Strided placed(Strided array, char *memory)
{
    array.data = memory;
    array.data -= array.row_bytes < 0 ? (array.rows - 1) * array.row_bytes : 0;
    array.data -= array.col_bytes < 0 ? (array.cols - 1) * array.col_bytes : 0;
    return array;
}

/* Copies between arrays with these strides, at these offsets in bytes from a cache line. */
static void check_copy(Copy *copy, Strided to, size_t to_offset, Strided from, size_t from_offset)
{
    enum { LINE = 64 };
    const size_t target_bytes = (to_offset + span(&to)) / LINE * LINE + 2 * LINE;
    char *const target = aligned_alloc(LINE, target_bytes), *const expected = malloc(target_bytes);
    /* Ends where the array ends, so that a sanitizer finds reads past it. */
    char *const source = malloc(from_offset + span(&from) + 1);
    fill(source, from_offset + span(&from), 1);
    fill(target, target_bytes, 2);
    memcpy(expected, target, target_bytes);
    from = placed(from, source + from_offset);
    to = placed(to, target + to_offset);
    for (int64_t i = 0; i < to.rows; ++i) {
        for (int64_t j = 0; j < to.cols; ++j) {
            for (int byte = 0; byte < ELEMENT; ++byte) {
                const int other = to.swapped == from.swapped ? byte : ELEMENT - 1 - byte;
                expected[to.data - target + i * to.row_bytes + j * to.col_bytes + byte] =
                    from.data[i * from.row_bytes + j * from.col_bytes + other];
            }
        }
    }
    copy(&to, &from);
    if (memcmp(target, expected, target_bytes) != 0) {
        give_up(copy == strided_stream ? "strided_stream" : "strided_copy", &to, &from);
    }
    free(target);
    free(expected);
    free(source);
}

static void check_copies(Copy *copy)
{
    for (size_t to_offset = 0; to_offset < 64; ++to_offset) {
        for (size_t from_offset = 0; from_offset < 16; ++from_offset) {
            for (int64_t cols = 0; cols <= 36; ++cols) { /* up to two cache lines and edges */
                const Strided lines = {NULL,    2,     cols, cols * ELEMENT + 16,
                                       ELEMENT, false, 0,    ELEMENT_FLOAT32};
                check_copy(copy, lines, to_offset, lines, from_offset);
            }
        }
    }
    enum { ROWS = 70, COLS = 130 }; /* larger than one block of either copy */
    static const Strided layouts[] = {
        {NULL, ROWS, COLS, COLS * ELEMENT, ELEMENT, false, 0, ELEMENT_FLOAT32},
        {NULL, ROWS, COLS, COLS * ELEMENT + 3, ELEMENT, false, 0, ELEMENT_FLOAT32},
        {NULL, ROWS, COLS, -COLS * ELEMENT, ELEMENT, false, 0, ELEMENT_FLOAT32},
        {NULL, ROWS, COLS, COLS * ELEMENT, -ELEMENT, false, 0, ELEMENT_FLOAT32},
        {NULL, ROWS, COLS, COLS * ELEMENT * 2, ELEMENT * 2, false, 0, ELEMENT_FLOAT32},
        {NULL, ROWS, COLS, ELEMENT, ROWS * ELEMENT, false, 0, ELEMENT_FLOAT32},
        {NULL, ROWS, COLS, -ELEMENT, ROWS * ELEMENT + 1, false, 0, ELEMENT_FLOAT32},
        {NULL, ROWS, COLS, COLS * ELEMENT, ELEMENT, true, 0, ELEMENT_FLOAT32},
        {NULL, ROWS, COLS, ELEMENT, ROWS * ELEMENT, true, 0, ELEMENT_FLOAT32},
    };
    const int count = (int)(sizeof layouts / sizeof *layouts);
    for (int to = 0; to < count; ++to) {
        for (int from = 0; from < count; ++from) {
            check_copy(copy, layouts[to], 16, layouts[from], 5);
        }
    }
}

/* ------------------------------------------------------------------ jobs */

enum { CALLERS = 4, ROUNDS = 10, JOBS = 300, SIDE = 20, MATRIX = SIDE * SIDE * ELEMENT };
static const char *planted = "none";

static bool has(const char *bug)
{
    return strcmp(planted, bug) == 0;
}

/* The longer pause puts all workers to sleep; during the shorter one, some still watch. */
static void rest(int round)
{
    const struct timespec time = {0, round % 2 ? 12000000 : 1000000};
    nanosleep(&time, NULL);
}

static void copy_by_jobs(uint32_t seed)
{
    static const Strided by_rows = {NULL,    SIDE,  SIDE, SIDE * ELEMENT,
                                    ELEMENT, false, 0,    ELEMENT_FLOAT32};
    Job *const jobs = malloc(JOBS * sizeof *jobs);
    char *const source = malloc(MATRIX), *const target = malloc((size_t)JOBS * MATRIX);
    fill(source, MATRIX, seed);
    memset(target, 0, (size_t)JOBS * MATRIX);
    for (int index = 0; index < JOBS; ++index) {
        jobs[index].copy = index % 2 ? strided_stream : strided_copy;
        jobs[index].to = placed(by_rows, target + (size_t)index * MATRIX);
        jobs[index].from = placed(by_rows, source);
        workers_add(&jobs[index]);
    }
    if (has("early")) {
        rest(0); /* workers do some jobs meanwhile */
        for (int index = 0; index < JOBS; ++index) {
            volatile char *const element = jobs[index].to.data;
            (void)*element;
        }
    }
    for (int index = 0; index < (has("gone") ? 1 : JOBS); ++index) {
        workers_wait(&jobs[index]);
        if (memcmp(jobs[index].to.data, source, MATRIX) != 0) {
            give_up("a job", &jobs[index].to, &jobs[index].from);
        }
    }
    free(target);
    free(source);
    free(jobs);
}

static void copy_by_all(uint32_t seed)
{
    enum { LONG_SIDE = 500 };
    const size_t bytes = LONG_SIDE * LONG_SIDE * ELEMENT;
    const Strided by_rows = {NULL,    LONG_SIDE, LONG_SIDE, LONG_SIDE * ELEMENT,
                             ELEMENT, false,     0,         ELEMENT_FLOAT32};
    char *const source = malloc(bytes), *const target = malloc(bytes);
    fill(source, bytes, seed);
    workers_touch(target, bytes);
    const Strided to = placed(by_rows, target), from = placed(by_rows, source);
    workers_copy(&to, &from, NULL);
    if (memcmp(target, source, bytes) != 0) {
        give_up("workers_copy", &to, &from);
    }
    free(target);
    free(source);
}

static void *call(void *first_seed)
{
    for (int round = 0; round < ROUNDS; ++round) {
        const uint32_t seed = *(uint32_t *)first_seed + (uint32_t)round;
        copy_by_jobs(seed);
        copy_by_all(seed);
        rest(round);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "--planted") == 0) {
        planted = arguments[2];
    }
    check_copies(strided_copy);
    check_copies(strided_stream);
    pthread_t callers[CALLERS];
    uint32_t seeds[CALLERS];
    for (int index = 0; index < CALLERS; ++index) {
        seeds[index] = (uint32_t)index * ROUNDS;
        if (pthread_create(&callers[index], NULL, call, &seeds[index]) != 0) {
            printf("no thread\n");
            return 1;
        }
    }
    for (int index = 0; index < CALLERS; ++index) {
        pthread_join(callers[index], NULL);
    }
    printf("copies and workers: right\n");
    return 0;
}
