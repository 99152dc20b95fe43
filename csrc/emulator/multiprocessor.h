/* An OS thread of the CPU device. It runs one cluster after another; without clusters, each block
 * is a cluster. */
#ifndef SGEMM_EMULATOR_MULTIPROCESSOR_H
#define SGEMM_EMULATOR_MULTIPROCESSOR_H

#include <pthread.h>

#include <atomic>

#include "block.h"
#include "fiber.h"
#include "fiber_sanitizers.h"

#pragma GCC visibility push(hidden)

/* A launch. */
struct Grid {
    AnyKernel kernel;
    int64_t clusters;     /* in all rows of the grid */
    int64_t row_clusters; /* with the same blockIdx.y */
    int cluster;          /* blocks per cluster */
    dim3 threads;
    int block_threads; /* per block; a multiple of 32 if a cluster has several blocks */
    int thread_count;  /* per cluster */
    size_t shared_bytes;
    int multiprocessors;
    std::atomic<int64_t> next_cluster; /* in a checking build: the first that is not skipped */
    std::atomic<int> begun;            /* multiprocessors, in a checking build */
    std::atomic<bool> stop;

    pthread_mutex_t mutex;
    pthread_cond_t one_less; /* signaled when a multiprocessor ends */
    int running;             /* multiprocessors */
    pthread_cond_t one_done; /* signaled when one has no more blocks, or has to stop */
    int done;                /* multiprocessors, in a checking build */
    Status status;           /* of the first failure */
};

/* Stops the launch with this error, unless it has another one. */
void grid_fail(Grid *grid, const Status &status);

struct Fiber {
    void *top; /* of its stack, while it waits */
    FiberSanitizer sanitizer;
};

/* Why a thread cannot run. */
struct Wait {
    const void *what;
    int line; /* of the kernel, or `returned` */
    DescribeWait *describe;
};

/* A block of the cluster. */
struct Block {
    GroupBarrier barrier; /* barrier of the block */
    int returned;         /* number of threads that have returned */
    int last_returned;    /* the last one */
    int returned_of_warp[max_threads / warp_size];
    unsigned char *shared;  /* dynamic shared memory */
    size_t shared_capacity; /* its bytes, or more */
};

/* A thread has an index, and a position in the order in which threads start and run. Threads of a
 * warp, and of a block, are adjacent in both. */
struct Multiprocessor {
    Grid *grid;
    char *stacks;
    size_t stride;
    int stack_count;
    Fiber host; /* the OS thread itself */
    Fiber fibers[max_threads];
    int order[max_threads];       /* thread at each position */
    int position_of[max_threads]; /* position of each thread */
    uint3 indices[max_threads];   /* threadIdx at each position */
    dim3 placed;                  /* block shape of these three arrays */
    int placed_count;             /* and threads per cluster */

    uint3 *thread_index;  /* the OS thread's threadIdx: finding its address takes a function call */
    int current;          /* position of the running thread */
    Block *block;         /* of the running thread */
    unsigned first_block; /* of the cluster */
    int begun;            /* number of threads that have started */
    int returned;         /* and that have returned */
    int last_returned;    /* the last one */
    uint64_t may_run[max_threads / 64]; /* by position: neither waits nor has returned */
    /* By position; `what` is NULL at a barrier of the block, and if the thread may run. */
    Wait waits[max_threads];

    /* In a checking build. */
    int64_t turn; /* index of the next cluster to run */
    uint64_t chance;

    Block blocks[max_cluster];
    GroupBarrier cluster, warps[max_threads / warp_size], warpgroups[max_threads / warpgroup_size];
    void *arguments[max_threads]; /* by thread: the argument of a group operation */
};

extern __thread Multiprocessor *multiprocessor;

/* Stacks are one page further apart: at a power of two they would share cache sets. */
#if defined(SGEMM_ASAN) || defined(SGEMM_TSAN)
constexpr size_t stack_bytes = 256 * 1024; /* sanitizers need more, and a guard page */
#elif defined(SGEMM_CHECKED) || defined(SGEMM_TRACED) || defined(SGEMM_STOPPABLE)
constexpr size_t stack_bytes = 576 * 1024; /* a GPU's thread has at most 512 KB of local memory */
#else
constexpr size_t stack_bytes = 64 * 1024;
#endif

/* Runs one cluster. The grid, stacks, order, indices and shared memory are set. */
void run_cluster(Multiprocessor *self, int64_t cluster);

#pragma GCC visibility pop

#endif
