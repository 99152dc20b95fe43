/* An OS thread of the CPU device, which runs one block after the other; or one cluster after the other,
 * whose threads take turns as those of one block do. A launch without clusters is one in clusters of one
 * block. */
#ifndef SGEMM_CPU_MULTIPROCESSOR_H
#define SGEMM_CPU_MULTIPROCESSOR_H

#include <pthread.h>

#include <atomic>

#include "block.h"
#include "fiber.h"
#include "fiber_sanitizers.h"

#pragma GCC visibility push(hidden)

/* A launch. */
struct Grid {
    AnyKernel kernel;
    int64_t clusters;
    int cluster; /* blocks of each */
    dim3 threads;
    int block_threads; /* of each block: a multiple of 32 where a cluster has several */
    int thread_count;  /* of each cluster */
    size_t shared_bytes;
    int multiprocessors;
    std::atomic<int64_t> next_cluster; /* in a checking build: the first that is not left out */
    std::atomic<int> begun;            /* multiprocessors, in a checking build */
    std::atomic<bool> stop;

    pthread_mutex_t mutex;
    pthread_cond_t one_less; /* signalled when a multiprocessor ends */
    int running;             /* multiprocessors */
    pthread_cond_t one_done; /* signalled when one has no more blocks, or is told to stop */
    int done;                /* multiprocessors, in a checking build */
    Status status;           /* of the first failure */
};

/* Has the launch stop with this error, unless it has another. */
void grid_fail(Grid *grid, const Status &status);

struct Fiber {
    void *top; /* of its stack, while it waits */
    FiberSanitizer sanitizer;
};

/* What keeps a thread from going on. */
struct Wait {
    const void *what;
    int line; /* of the kernel, or `returned` */
    DescribeWait *describe;
};

/* A block of the cluster. */
struct Block {
    Meeting meeting;        /* at a barrier of the block */
    int returned;           /* how many of its threads have come to their end */
    int last_returned;      /* which thread that was */
    unsigned char *shared;  /* its dynamic shared memory, */
    size_t shared_capacity; /* of at least so many bytes */
};

/* Threads have numbers, and positions in the order in which they begin and take turns. Those of a warp
 * are neighbours by either, and those of a block as well. */
struct Multiprocessor {
    Grid *grid;
    char *stacks;
    size_t stride;
    Fiber host; /* the OS thread itself */
    Fiber fibers[max_threads];
    int order[max_threads];       /* threads by position */
    int position_of[max_threads]; /* and the other way round */
    uint3 indices[max_threads];   /* threadIdx by position */
    dim3 placed;                  /* the blocks for which these three were made, */
    int placed_count;             /* and the threads of a cluster */

    uint3 *thread_index;  /* threadIdx of this OS thread, whose address takes a call to find */
    int current;          /* position of the thread that runs */
    Block *block;         /* of that thread */
    unsigned first_block; /* of the cluster */
    int begun;            /* how many threads have begun */
    int returned;         /* and have come to their end */
    int last_returned;    /* which thread that was */
    uint64_t may_run[max_threads / 64]; /* by position: who neither waits nor has returned */
    Wait waits[max_threads]; /* by position: what those wait for who may not run; `what` is NULL
                                at a barrier of the block, and for who may run */

    /* In a checking build. */
    int64_t turn; /* of the launch's clusters the next that this one runs */
    uint64_t chance;

    Block blocks[max_cluster];
    Meeting cluster, warps[max_threads / warp_size], warpgroups[max_threads / warpgroup_size];
    void *brought[max_threads]; /* by number: what each thread brought to where it met others */
};

extern __thread Multiprocessor *multiprocessor;

/* Stacks are one page apart: at an exact power of two they would share cache sets. */
#ifdef SGEMM_CHECKED
constexpr size_t stack_bytes = 256 * 1024; /* sanitizers need more, and get a guard page */
#else
constexpr size_t stack_bytes = 64 * 1024;
#endif

/* Runs one cluster, once self's grid, stacks, order, indices and its blocks' shared memory are set. */
void run_cluster(Multiprocessor *self, int64_t cluster);

#pragma GCC visibility pop

#endif
