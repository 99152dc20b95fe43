/* What the emulator tells the sanitizer, which checks all accesses of a custom kernel against this
 * order. */
#ifndef SGEMM_EMULATOR_SANITIZER_HOOKS_H
#define SGEMM_EMULATOR_SANITIZER_HOOKS_H

#include <stddef.h>

struct SanitizerHooks {
    void (*block_begins)();
    void (*block_ends)();
    void (*release)(const void *object);
    void (*acquire)(const void *object);
    void (*fence)();
    void (*atomic)(const void *address, size_t bytes);
    void (*called_from)(const void *returns_to); /* in the kernel, if it is a call there */
    void (*barrier)();
    void (*thread_runs)();
    void (*named_barrier)(int rank, int id, unsigned round);
    void (*two_barriers)(int other_thread, int other_line, int line);
    void (*mbarrier)(const void *barrier, bool begins);
    void (*product)(float *const *sums, int n);
    void (*product_commit)();
    void (*product_wait)(int left);
};

/* The sanitizer sets them before the first launch. */
extern SanitizerHooks sanitizer_hooks;

#endif
