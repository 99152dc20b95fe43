#define _GNU_SOURCE /* sched_getaffinity */
#include "threads.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "undisturbed.h"

static int number_set, quota_set;

void usable_cores_set(int number, int quota)
{
    __atomic_store_n(&number_set, number, __ATOMIC_RELAXED);
    __atomic_store_n(&quota_set, quota, __ATOMIC_RELAXED);
}

int usable_cores(void)
{
    const int number = __atomic_load_n(&number_set, __ATOMIC_RELAXED);
    if (number > 0) {
        return number;
    }
    const int quota = __atomic_load_n(&quota_set, __ATOMIC_RELAXED);
    cpu_set_t set;
    const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return quota > 0 && quota < cores ? quota : cores;
}

bool usable_cores_have_quota(void)
{
    return __atomic_load_n(&quota_set, __ATOMIC_RELAXED) > 0;
}

/* pthread_create returns EAGAIN both without memory for the stack and at the thread limit: this
 * tells them apart. */
static bool stack_fits(size_t bytes)
{
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    munmap(memory, bytes);
    return true;
}

static Status not_started(int error)
{
    size_t stack = 0, guard = 0;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_getguardsize(&attributes, &guard);
        pthread_attr_destroy(&attributes);
    }
    if (error == ENOMEM || (error == EAGAIN && !stack_fits(stack + guard))) {
        return status_error(STATUS_OUT_OF_MEMORY,
                            "out of memory: the stack of a new thread takes %.3g MB of address "
                            "space. Free memory or raise the limit (ulimit -v)",
                            (double)(stack + guard) / 1e6);
    }
    return status_error(
        STATUS_DEVICE,
        "cannot start a thread (%s): the process or its user has reached the limit. Raise it "
        "(ulimit -u)",
        strerror(error));
}

Status thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument)
{
    Undisturbed before;
    undisturbed_begin(&before); /* the new thread inherits the blocked signals */
    const int error = pthread_create(thread, NULL, body, argument);
    undisturbed_end(&before);
    return error ? not_started(error) : status_ok();
}
