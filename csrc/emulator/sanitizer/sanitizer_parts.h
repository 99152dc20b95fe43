/* What the parts of the checking program share: the running thread, the kernel's lines, the arrays,
 * and the findings. sanitizer.h is the interface to driver.cpp. */
#ifndef SGEMM_SANITIZER_PARTS_H
#define SGEMM_SANITIZER_PARTS_H

#include <stdint.h>

#include <map>
#include <string>
#include <vector>

#include "../block.h"
#include "../sanitizer_hooks.h"
#include "sanitizer.h"

#pragma GCC visibility push(hidden)

/* ------------------------------------------------------------------ the emulator's hooks */

void sanitize_block_begins();
void sanitize_block_ends();
void sanitize_release(const void *object);
void sanitize_acquire(const void *object);
void sanitize_fence();
void sanitize_atomic(const void *address, size_t bytes);
void sanitize_called_from(const void *returns_to);
void sanitize_barrier();
void sanitize_thread_runs();
void sanitize_named_barrier(int rank, int id, unsigned round);
void sanitize_two_barriers(int other_thread, int other_line, int line);
void sanitize_mbarrier(const void *barrier, bool begins);
void sanitize_product(float *const *sums, int n);
void sanitize_product_commit();
void sanitize_product_wait(int left);

/* ------------------------------------------------------------------ sanitizer_lines.cpp */

/* A call in the kernel's object. Sites are numbered from 1 in the order of their addresses; 0 is an
 * unknown one. The compiler makes a call at each access and at each basic block. */
typedef int Site;

struct Line {
    const char *file;
    int number;
};

Site site_of(const void *returns_to);
Line line_of(Site site);

/* Whether the site is in one of the files that sanitizer_files() names. */
bool is_own(Site site);

/* 'line 7', or 'line 7 of ptx.h' for a file that is not the kernel's. */
std::string name_of_line(Site site);

/* ------------------------------------------------------------------ the running thread */

/* Calls below the kernel's own, which has depth 2. Deeper ones count as the last of these. */
constexpr int most_depth = 12, kernel_depth = 2;

/* The rounds of a loop by one thread since its block last made progress. */
struct IdleRounds {
    int64_t progress;
    int64_t rounds;
    unsigned latest; /* the first step of the latest one */
};

struct Running {
    int number; /* of the thread in its block or cluster */
    int depth;
    Site returns_to[most_depth];   /* of each call: its site */
    Site block_at[most_depth];     /* the latest basic block at each depth, */
    unsigned began_at[most_depth]; /* and its step */
    Site latest;                   /* call by the kernel */
    unsigned step;                 /* basic blocks that it has run in this block of the grid */
    Site access;                   /* the latest access to an array, in the kernel's own body, */
    unsigned access_at;            /* and its step */
    std::vector<IdleRounds> idle;  /* by loop */
    IdleRounds all;                /* in all loops; `latest` is the step of the first one */
};
extern Running threads_state[max_threads];
extern Running *running;

/* Where the running thread is, for a call that returns to `site`: in the kernel's own body, and in
 * the innermost function that is in a file of the kernel's. */
Site site_in_kernel(Site site);
Site site_to_tell(Site site);
Site site_to_tell(Site site, int depth); /* in a function at this depth */

/* Where the running thread is now, to tell. */
Site present_site();

/* The place of the running thread, for signal handlers of another OS thread. */
extern volatile Site latest_site;
extern volatile int latest_thread;
extern volatile int64_t latest_block;
extern volatile Site unaligned_site; /* of the latest unaligned access */

extern dim3 block_threads;
extern int cluster_blocks;
extern bool watching; /* the threads of a block or cluster are running */
extern int64_t launches;
extern uint32_t blocks_begun; /* of all launches */

int threads_of_block();
int thread_in_block();
int thread_count(); /* of the cluster, which has at most max_threads */

/* A unique number of the block or cluster, for all launches. Its low half is the first block. */
int64_t this_cluster();

/* The block of a thread, from its this_cluster() and its number. */
long long block_of(int64_t cluster, int thread);

/* ------------------------------------------------------------------ sanitizer_memory.cpp */

/* The latest access of one kind to a word, at a clock of its thread. */
struct Touch {
    int16_t thread = no_thread;
    uint8_t bytes; /* the touched bytes of the word, one bit each */
    bool atomic : 1;
    bool mbarrier : 1;   /* its initialization or use, not its bytes */
    bool on_its_way : 1; /* an asynchronous copy that no thread has waited for */
    unsigned clock;
    unsigned step;  /* of the thread */
    Site site;      /* to tell */
    Site in_kernel; /* in the kernel's own body */
    int64_t block;  /* from this_cluster() */

    static constexpr int no_thread = -1;
};
constexpr int no_thread = Touch::no_thread;

/* The history of a word of 4 bytes. Three readers since the last write are enough: one, one of
 * another warp, and another one of its own warp. */
struct Word {
    int64_t block = -1;
    Touch writer, reader, reader_of_other_warp, other_reader_of_warp;
};

struct Array {
    const char *name;
    uintptr_t begin, end;
    size_t redzone;          /* unused bytes after it */
    bool scratch;            /* shared by blocks, and by the kernels of a product */
    bool zeros;              /* scratch that is zero at first */
    std::vector<Word> words; /* empty for an input */
    std::vector<uint32_t>
        seen; /* by word: the latest block that accessed it; not for shared memory */
    const SanitizerOperand *operand; /* NULL for scratch and shared memory */
    bool given = false;              /* scratch that the launcher has given back */
};

extern SanitizerOperand operands[3];
extern std::vector<Array> arrays;
extern bool fills_with_zeros; /* and prints nothing */

/* Bytes after each shared array (annotate_assembly.py) and dynamic shared memory (grid.cpp). */
constexpr size_t redzone = 128;

void add_array(const char *name, uintptr_t begin, size_t bytes, size_t behind,
               const SanitizerOperand *operand, bool scratch = false);

/* Searches the newest array first: it may be part of an older one. */
Array *array_at(uintptr_t address);

/* Forgets what the last product did. */
void memory_product_begins();

/* With NaN, or with zeros. */
void fill(uintptr_t begin, size_t bytes);

/* Checks one access. */
void look(const void *pointer, int bytes, bool store, bool atomic, Site site);
void look_at(const void *pointer, int bytes, bool store, const void *returns_to);

/* Whether it is an element of C that beta = 0 leaves undefined and no thread has written. */
bool is_unset_C(const Array &array, uintptr_t address);

std::string element_of(const Array &array, uintptr_t address);

/* What one product did, for sanitizer_print_counts. */
struct Done {
    int64_t barriers;              /* of the first block */
    int64_t atomics;               /* of all threads */
    int64_t accesses[max_threads]; /* of each thread of the first block */
    /* Of the first block: reads of shared memory; those after the thread has read elements of A
     * and B, since its last barrier, that no thread had read; those while a copy of the thread is
     * on its way. */
    int64_t shared_reads, reads_ahead, reads_in_flight;
    unsigned new_inputs[max_threads]; /* read since its last barrier: 1 for A, 2 for B */
    /* Of the first block: waits that complete a copy; those that leave another one on its way;
     * copied words; those whose copies arrive at an mbarrier. */
    int64_t waits, waits_with_more, copied, copied_to_mbarriers;
};
extern Done done;

/* An index out of range; the next access has the array's name. */
struct OutOfBounds {
    bool there;
    Site site;
    std::string text;
};
extern OutOfBounds out_of_bounds;

/* ------------------------------------------------------------------ sanitizer_order.cpp */

/* Vector clocks (C. J. Fidge, 1988; F. Mattern, 1989). clocks[t][u] is the latest clock of thread u
 * that happened before thread t's next access. A thread leaves its clocks at a barrier, and then
 * its own clock advances. */
extern unsigned clocks[max_threads][max_threads];

/* Whether the thread has started asynchronous copies that it has not waited for. */
bool has_copies_on_their_way(int thread);

/* Words that asynchronous copies are writing: for each thread by group (the last group is still
 * open). The CPU device copies at once, but no thread may touch these words before it has waited,
 * not even the copying thread. */
extern std::vector<std::vector<Word *>> copies_of_thread[max_threads];
extern bool copying; /* the current write is an asynchronous copy */
extern bool uses_mbarriers;

/* Whether the two accesses cannot race: a barrier or fences order them, they touch different bytes,
 * or both are atomic. */
bool ordered(const Touch &before, const Touch &now);

void order_block_begins();
void order_launch_begins();

/* ------------------------------------------------------------------ sanitizer_products.cpp */

/* The running thread accesses one of its own variables: a warpgroup's product must have ended. */
void look_at_accumulators(uintptr_t address, bool store, Site site);
void products_block_begins();

/* ------------------------------------------------------------------ sanitizer_rounds.cpp */

/* The running thread begins a basic block. */
void step_to(Site site);

/* The block has read or written an element for the first time. */
void has_progressed();

void rounds_product_begins(double multiply_adds);
void rounds_block_begins();

/* How many rounds of a loop the first access is ahead of the second one. Both must be of threads of
 * the running block or cluster. */
struct Rounds {
    bool loop; /* one loop contains both */
    int ahead;
};
Rounds rounds_between(const Touch &one, const Touch &other);

/* ------------------------------------------------------------------ sanitizer_report.cpp */

std::string formatted(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* '4', or '(4, 1)' in a plain kernel's grid of two or three dimensions. */
std::string name_of_block(int64_t block);

/* Prints fields separated by tabs: finding, kind, file, line, array, block, two threads, text. */
void print_finding(const char *kind, Site site, const char *array, int64_t block, int thread,
                   int other_thread, const std::string &text);

/* The same for the running thread. */
void tell(const char *kind, Site site, const char *array, const std::string &text);

/* Whether it is the first time for this kind and array, at this site, beside another one. A text
 * need not be made again for each of a million accesses. */
bool is_first(const char *kind, const Array *array, Site site, Site other = 0);

/* The running thread's access `now` is not ordered after `before`. */
void tell_race(const Array &array, uintptr_t address, const Touch &before, bool was_store,
               const Touch &now, bool store);

/* A read of memory that was never written, told if the product is wrong. */
void suspect(Site site, const char *array, const std::string &text);

/* An asynchronous copy to the word of such a read begins now. */
void suspect_of_copy(const Array &array, uintptr_t address, const Touch &read, const Touch &copy);

#pragma GCC visibility pop

#endif
