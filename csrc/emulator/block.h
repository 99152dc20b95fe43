/* How the threads of a block, or of a cluster, wait for each other. They share one OS thread and
 * run in turn. All functions refer to the running thread. */
#ifndef SGEMM_EMULATOR_BLOCK_H
#define SGEMM_EMULATOR_BLOCK_H

#include "grid.h"

#pragma GCC visibility push(hidden)

constexpr int max_block_threads = 1024; /* as on every GPU */
#ifdef SGEMM_SANITIZED
constexpr int max_threads = max_block_threads; /* of a cluster: the order of every two is known */
#else
constexpr int max_threads = 3 * max_block_threads; /* of a cluster */
#endif
constexpr int max_cluster = 8; /* blocks per cluster that every GPU with clusters supports */
constexpr int warp_size = 32;
constexpr int warpgroup_size = 128;

/* The index of the thread in its block. In a cluster, indices continue from block to block. The
 * threads of a warp have consecutive indices. */
int block_thread();

/* The number of threads per block. */
int block_thread_count();

/* Increases at each __syncthreads() of the block. */
unsigned block_barrier_round();

/* Whether the address is in the stack of one of the running threads, or in the page before it. */
bool block_has_stack_at(const void *address);

/* The name of a thread in messages: "thread 7", or "thread 7 of block 3" in a cluster. Valid until
 * the second call on the same OS thread. A static buffer, because a buffer in the caller would
 * enlarge the stacks of a thousand waiting threads, which share a processor's caches. */
const char *thread_name(int thread = block_thread());

/* Ends the launch with this error. */
[[noreturn]] void block_fail(const Status &status);

/* Ends the block or cluster that runs here, because its launch stops. */
[[noreturn]] void block_leave();

/* Describes `what` for the error message after "waits at line 7 for ". */
typedef void DescribeWait(const void *what, char *text, size_t bytes);

/* Runs other threads until block_wake(what). If no thread can run, the launch ends with an error
 * that lists what each thread waits for. `line` is a line of the kernel. */
void block_sleep(const void *what, int line, DescribeWait *describe);

/* Wakes all threads that wait for `what`. */
void block_wake(const void *what);

/* Runs all other runnable threads first, each until it waits; in a checking build, not always. */
void block_yield();

/* A barrier of a group of threads. It counts the threads that have arrived; 0 when a block
 * starts. */
struct GroupBarrier {
    int arrived;
    int line, thread; /* of the last arrival */
    unsigned round;   /* increases each time all have arrived */
    GroupOperation *operation;
};

/* Waits until all `size` threads of the warp or warpgroup have reached this line. Each passes an
 * argument. Then `operation`, unless it is NULL, runs once. */
void block_synchronize_group(GroupBarrier *barrier, int size, int line, GroupOperation *operation,
                             void *mine);

#pragma GCC visibility pop

#endif
