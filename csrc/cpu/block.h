/* The threads of one block, or of the blocks of a cluster, which take turns on an OS thread: what those
 * parts of the CPU device are made of in which threads wait for one another. All is said of the thread
 * that runs. */
#ifndef SGEMM_CPU_BLOCK_H
#define SGEMM_CPU_BLOCK_H

#include "grid.h"

#pragma GCC visibility push(hidden)

constexpr int max_threads = 1024; /* of a block, as on every GPU, and here of a cluster as well */
constexpr int max_cluster = 8;    /* blocks of a cluster that every GPU with clusters takes */
constexpr int warp_size = 32;
constexpr int warpgroup_size = 128;

/* Its number in the block; in a cluster, where each block has as many, the threads of the cluster's first
 * block are counted first, then those of its second. A warp's are always neighbours. */
int block_thread();

/* How many threads the block has, and every other of its cluster. */
int block_thread_count();

/* How messages call the thread of this number: "thread 7", or "thread 7 of block 3" in a cluster. Stays
 * until the second call from there. It is no variable of the caller: where that waits, each line of its
 * stack is one of a thousand threads', which share a processor's caches. */
const char *thread_name(int thread = block_thread());

/* Ends the launch with this error. */
[[noreturn]] void block_fail(const Status &status);

/* Ends what runs here, a block or a cluster, whose launch is to stop. */
[[noreturn]] void block_leave();

/* Writes what is missing for a thread to go on that waits for `what`, after "waits at line 7 for ". */
typedef void DescribeWait(const void *what, char *text, size_t bytes);

/* Has others run until block_wake(what). If nobody can, the launch ends with an error that says what
 * each thread waits for. `line` is the kernel's. */
void block_sleep(const void *what, int line, DescribeWait *describe);

/* All threads that wait for `what` may go on. */
void block_wake(const void *what);

/* Has all others that may go on run first, each until it waits; in a checking build not always. */
void block_yield();

/* How many threads of a group have come to where they meet: none when a block begins. */
struct Meeting {
    int arrived;
    int line,
        thread; /* of the last that came; of the first, where all of a block or a cluster meet */
    unsigned round; /* counts the times that all were there */
    GroupOperation *operation;
};

/* Waits until the `size` threads of its group, a warp or a warpgroup, have come to this line, each of
 * which brings something, and has the operation done once, if there is one. */
void block_meet(Meeting *meeting, int size, int line, GroupOperation *operation, void *mine);

#pragma GCC visibility pop

#endif
