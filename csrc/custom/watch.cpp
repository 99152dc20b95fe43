#include "watch.h"

#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "../cpu/block.h"

/* Tables in the kernel's object, written by sgemm_kernels/custom/annotate_assembly.py as for
 * ../count/count.cpp. */
struct CallSite {
    int32_t place;
    int32_t file;
    int32_t line;
};
struct SharedArray {
    int32_t place;
    int32_t bytes;
    char name[24];
};
extern "C" {
extern const CallSite __start_sgemm_call_sites[], __stop_sgemm_call_sites[];
extern const SharedArray __start_sgemm_shared_arrays[], __stop_sgemm_shared_arrays[];
}

namespace {

constexpr int no_thread = -1;

/* The latest access of one kind to a word, at a clock of its thread. */
struct Touch {
    int thread = no_thread;
    unsigned bytes; /* the touched bytes of the word, one bit each */
    unsigned clock;
    bool atomic;
    bool on_its_way; /* an asynchronous copy that no thread has waited for */
    int64_t block;   /* from this_cluster() */
    uintptr_t place; /* code address */
};

/* The history of a word of 4 bytes. Three readers since the last write are enough: one, one of
 * another warp, and another one of its own warp. */
struct Word {
    int64_t block = -1;
    Touch writer, reader, reader_of_other_warp, other_reader_of_warp;
};

struct Array {
    const char *name;
    uintptr_t begin, end;
    size_t redzone;                /* unused bytes after it */
    bool scratch;                  /* shared by blocks, and by the kernels of a product */
    bool zeros;                    /* scratch that is zero at first */
    std::vector<Word> words;       /* empty for an input */
    std::vector<bool> read;        /* for an input: whether each word was read */
    const WatchedOperand *operand; /* NULL for scratch and shared memory */
};

uintptr_t address_at(const int32_t &place)
{
    return reinterpret_cast<uintptr_t>(&place) + static_cast<intptr_t>(place);
}

struct Line {
    const char *file;
    int number;
};

Line line_of(uintptr_t place)
{
    for (const CallSite *site = __start_sgemm_call_sites; site != __stop_sgemm_call_sites; ++site) {
        if (address_at(site->place) == place) {
            return {reinterpret_cast<const char *>(address_at(site->file)), site->line};
        }
    }
    return {"", 0};
}

WatchedOperand operands[3];
std::vector<Array> arrays;
dim3 block_threads = 0;
int cluster_blocks = 1;
bool watching = false;            /* the threads of a block or cluster are running */
bool fills_with_zeros;            /* and prints nothing */
int64_t grid_size[3] = {1, 1, 1}; /* of a plain kernel */
bool launcher_runs;               /* the host's code between the kernels of a product */
/* Vector clocks (C. J. Fidge, 1988; F. Mattern, 1989). clocks[t][u] is the latest clock of thread u
 * that happened before thread t's next access. A thread leaves its clocks at a barrier, and then
 * its own clock advances. */
unsigned clocks[max_threads][max_threads];
std::map<const void *, std::vector<unsigned>> left_at;
/* The same for threads of other blocks, which fences and atomic operations order. An atomic
 * operation publishes the thread's clocks of its last fence, and receives what others
 * published. These count from the thread's next fence on. Barriers pass them on, too. A cluster
 * counts as one block here. */
typedef std::map<int64_t, std::vector<unsigned>> Clocks; /* by block, or by cluster */
Clocks of_others[max_threads], at_fence[max_threads], came_with_atomics[max_threads];
std::map<const void *, Clocks> others_left_at, went_with_atomics;
int64_t launches;
/* Words that asynchronous copies are writing: for each thread by group (the last group is still
 * open), and by the barrier phase that completes them. The CPU device copies at once, but no thread
 * may touch these words before it has waited, not even the copying thread. */
std::vector<std::vector<Word *>> copies_of_thread[max_threads];
std::map<const void *, std::vector<Word *>> copies_of_phase;
bool copying; /* the current write is an asynchronous copy */
struct Calls {
    int depth;
    uintptr_t in_kernel; /* return address of the call in the kernel's own body */
} calls[max_threads];

/* The place of the running thread, for signal handlers of another OS thread. */
volatile uintptr_t latest_place;
volatile int latest_thread;
volatile int64_t latest_block;
volatile uintptr_t unaligned_place; /* of the latest unaligned access */

/* One finding per kind and place. */
std::set<std::tuple<std::string, std::string, int, std::string>> told;
struct Suspect {
    int thread; /* in its block */
    int64_t block;
    uintptr_t place;
    std::string text;
};
std::map<std::pair<uintptr_t, const char *>, Suspect> suspects;
struct {
    bool there;
    uintptr_t place;
    std::string text;
} out_of_bounds; /* an index out of range; the next access has the array's name */

/* What one product did, for watch_print_counts. */
struct {
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
} done;

int threads_of_block()
{
    return static_cast<int>(block_threads.x * block_threads.y * block_threads.z);
}

int thread_in_block()
{
    return static_cast<int>((threadIdx.z * block_threads.y + threadIdx.y) * block_threads.x +
                            threadIdx.x);
}

/* The number among the threads of the cluster, which has at most max_threads. */
int thread_number()
{
    return cluster_blocks > 1 ? grid_cluster_rank() * threads_of_block() + thread_in_block()
                              : thread_in_block();
}

int thread_count()
{
    return cluster_blocks * threads_of_block();
}

/* A unique number of the block or cluster, for all launches. Its low half is the first block. */
int64_t this_cluster()
{
    const int rank = cluster_blocks > 1 ? grid_cluster_rank() : 0;
    return launches << 32 | (blockIdx.x - static_cast<unsigned>(rank));
}

/* The block of a thread, from its this_cluster() and thread_number(). */
long long block_of(int64_t cluster, int thread)
{
    return static_cast<uint32_t>(cluster) + thread / threads_of_block();
}

void add_clocks(Clocks *to, const Clocks &from)
{
    for (const auto &entry : from) {
        std::vector<unsigned> &known = (*to)[entry.first];
        known.resize(static_cast<size_t>(thread_count()));
        for (size_t thread = 0; thread < known.size(); ++thread) {
            known[thread] = std::max(known[thread], entry.second[thread]);
        }
    }
}

/* The code address in the kernel's own body. The access itself may be in a helper that it calls. */
uintptr_t kernel_place(uintptr_t returns_to)
{
    const Calls &own = calls[thread_number()];
    return own.depth > 2 ? own.in_kernel : returns_to;
}

std::string formatted(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string formatted(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

/* '4', or '(4, 1)' in a plain kernel's grid of two or three dimensions. */
std::string name_of_block(int64_t block)
{
    const long long x = grid_size[0], y = grid_size[1], z = grid_size[2];
    return y == 1 && z == 1 ? std::to_string(block)
           : z == 1         ? formatted("(%lld, %lld)", block % x, block / x)
                    : formatted("(%lld, %lld, %lld)", block % x, block / x % y, block / x / y);
}

/* Prints fields separated by tabs: finding, kind, file, line, array, block, two threads, text. */
void print_finding(const char *kind, uintptr_t place, const char *array, int64_t block, int thread,
                   int other_thread, const std::string &text)
{
    if (fills_with_zeros) {
        return;
    }
    const Line line = line_of(place);
    /* An index may be reported both with and without its array's name. */
    const char *const whose = strcmp(kind, "out of bounds") == 0 ? "" : array;
    if (told.size() < 100 && told.insert({kind, line.file, line.number, whose}).second) {
        printf("finding\t%s\t%s\t%d\t%s\t%lld\t%d\t%d\t%s\n", kind, line.file, line.number, array,
               static_cast<long long>(block), thread, other_thread,
               (block > 0 ? text + ", in block " + name_of_block(block) : text).c_str());
    }
}

void tell(const char *kind, uintptr_t place, const char *array, const std::string &text)
{
    print_finding(kind, place, array, blockIdx.x, thread_in_block(), no_thread, text);
}

/* Searches the newest array first: it may be part of an older one. */
Array *array_at(uintptr_t address)
{
    for (auto array = arrays.rbegin(); array != arrays.rend(); ++array) {
        if (array->begin <= address && address < array->end + array->redzone) {
            return &*array;
        }
    }
    return nullptr;
}

/* ------------------------------------------------------------------ one access */

/* Whether the two accesses cannot race: a barrier or fences order them, they touch different bytes,
 * or both are atomic. */
bool ordered(const Touch &before, const Touch &now)
{
    if (before.thread == no_thread || (before.bytes & now.bytes) == 0 ||
        (before.atomic && now.atomic) || before.block >> 32 != now.block >> 32) {
        return true;
    }
    if (before.on_its_way) {
        return false;
    }
    if (before.block == now.block) {
        return before.thread == now.thread || before.clock <= clocks[now.thread][before.thread];
    }
    const auto known = of_others[now.thread].find(before.block);
    return known != of_others[now.thread].end() &&
           before.clock <= known->second[static_cast<size_t>(before.thread)];
}

std::string element_of(const Array &array, uintptr_t address)
{
    if (!array.operand) {
        return formatted("%s, element %lld", array.name,
                         static_cast<long long>((address - array.begin) / sizeof(float)));
    }
    const Matrix &X = array.operand->matrix;
    const int64_t offset = (static_cast<int64_t>(address) - reinterpret_cast<int64_t>(X.data)) /
                           static_cast<int64_t>(sizeof(float));
    const int64_t ld = X.col_stride == 1 ? X.row_stride : X.col_stride;
    const int64_t line = offset >= 0 ? offset / ld : -1 - (-1 - offset) / ld;
    const int64_t along = offset - line * ld;
    return formatted("%s[%lld, %lld]", array.name,
                     static_cast<long long>(X.col_stride == 1 ? line : along),
                     static_cast<long long>(X.col_stride == 1 ? along : line));
}

bool inside_operand(const WatchedOperand &operand, uintptr_t address)
{
    const Matrix &X = operand.matrix;
    const auto first = reinterpret_cast<uintptr_t>(X.data);
    const int64_t lines = X.col_stride == 1 ? X.rows : X.cols;
    const int64_t length = X.col_stride == 1 ? X.cols : X.rows;
    const int64_t ld = X.col_stride == 1 ? X.row_stride : X.col_stride;
    if (address < first) {
        return false;
    }
    const auto offset = static_cast<int64_t>((address - first) / sizeof(float));
    return offset / ld < lines && offset % ld < length;
}

void tell_race(const Array &array, uintptr_t address, const Touch &before, bool was_store,
               uintptr_t place, bool store)
{
    const Line other = line_of(before.place);
    const int thread = thread_in_block(), other_thread = before.thread % threads_of_block();
    const bool one_cluster = before.block == this_cluster();
    const long long other_block = block_of(before.block, before.thread);
    const bool one_block = one_cluster && other_block == blockIdx.x;
    const std::string of_block =
        one_block ? "" : formatted(" of block %s", name_of_block(other_block).c_str());
    if (before.on_its_way) {
        print_finding(
            "race", place, array.name, blockIdx.x, thread, other_thread,
            formatted("thread %d %s %s, to which the asynchronous copy of thread %d%s, line "
                      "%d, is on its way, and nobody waited for it",
                      thread, store ? "writes" : "reads", element_of(array, address).c_str(),
                      other_thread, of_block.c_str(), other.number));
        return;
    }
    const bool same_place = was_store && store && before.place == place;
    const bool earlier_round = one_cluster && other.number > line_of(place).number;
    print_finding("race", place, array.name, blockIdx.x, thread, other_thread,
                  formatted("thread %d %s %s, which thread %d%s %s%s at line %d%s, and no %s "
                            "between them",
                            thread, store ? "writes" : "reads", element_of(array, address).c_str(),
                            other_thread, of_block.c_str(), was_store ? "writes" : "reads",
                            same_place ? " too" : "", other.number,
                            same_place      ? ": two threads write the same element"
                            : earlier_round ? " in an earlier round of the loop"
                                            : "",
                            one_block     ? "barrier is"
                            : one_cluster ? "barrier of the cluster is"
                                          : "fences with atomic operations are"));
}

/* `address` is in the word; `bytes` has one bit for each touched byte. */
void look_at_word(Array *array, uintptr_t address, unsigned bytes, bool store, bool atomic,
                  uintptr_t place)
{
    Word &word = array->words[(address - array->begin) / sizeof(float)];
    const int thread = thread_number();
    const int64_t block = this_cluster();
    const bool copied = store && copying;
    const Touch now = {thread, bytes, clocks[thread][thread], atomic, copied, block, place};
    if (word.block != block && !array->scratch) {
        if (array->operand && store && !ordered(word.writer, now)) {
            const Line other = line_of(word.writer.place);
            tell(
                "race", place, array->name,
                formatted("thread %d writes %s, which block %s writes too, at line %d: two threads "
                          "write the same element",
                          thread_in_block(), element_of(*array, address).c_str(),
                          name_of_block(block_of(word.block, word.writer.thread)).c_str(),
                          other.number));
        }
        if (!array->operand || store) { /* shared memory has a new history in each block */
            word = {};
            word.block = block;
        }
    }
    if (!ordered(word.writer, now)) {
        tell_race(*array, address, word.writer, true, place, store);
    }
    if (store) {
        for (const Touch *reader :
             {&word.reader, &word.reader_of_other_warp, &word.other_reader_of_warp}) {
            if (!ordered(*reader, now)) {
                tell_race(*array, address, *reader, false, place, true);
            }
        }
        word.writer = now;
        if (copied) {
            copies_of_thread[thread].back().push_back(&word);
            done.copied += blockIdx.x == 0;
        }
        word.reader = word.reader_of_other_warp = word.other_reader_of_warp = Touch();
        return;
    }
    if (word.writer.thread == no_thread && !array->operand && !array->zeros) {
        suspects.insert({{place, array->name},
                         {thread_in_block(), blockIdx.x, place,
                          formatted("thread %d reads %s, which no thread%s has written",
                                    thread_in_block(), element_of(*array, address).c_str(),
                                    array->scratch ? "" : " of its block")}});
    }
    /* An ordered earlier reader need not be kept. */
    Touch *const readers[3] = {&word.reader, &word.reader_of_other_warp,
                               &word.other_reader_of_warp};
    for (Touch *reader : readers) {
        if (ordered(*reader, now)) {
            *reader = now;
            return;
        }
    }
    (word.reader.thread / warp_size != thread / warp_size ? word.reader_of_other_warp
                                                          : word.other_reader_of_warp) = now;
}

/* Whether it is an element of C that beta = 0 leaves undefined and no thread has written. */
bool is_unset_C(const Array &array, uintptr_t address)
{
    return array.operand && !array.operand->readable && !array.words.empty() &&
           array.words[(address - array.begin) / sizeof(float)].writer.thread == no_thread;
}

bool has_copies_on_their_way(int thread)
{
    const auto &groups = copies_of_thread[thread];
    return std::any_of(groups.begin(), groups.end(),
                       [](const std::vector<Word *> &group) { return !group.empty(); });
}

void count_read(const Array &array, uintptr_t address)
{
    const int thread = thread_number();
    if (array.operand) {
        const size_t word = (address - array.begin) / sizeof(float);
        if (array.operand->input && word < array.read.size() && !array.read[word]) {
            done.new_inputs[thread] |= 1u << (array.operand - operands);
        }
    } else if (!array.scratch) {
        ++done.shared_reads;
        done.reads_ahead += done.new_inputs[thread] == 3;
        done.reads_in_flight += has_copies_on_their_way(thread);
    }
}

/* Operands with more bytes have no record of each word. */
constexpr size_t most_recorded = size_t{1} << 30;
constexpr int64_t most_large_accesses = 4000000; /* then the block ends: it is too slow */
LargeTouch large;
int64_t large_accesses;

bool is_large(const Array &array)
{
    return array.operand && array.operand->bytes > most_recorded;
}

void look_at_large(const Array &array, uintptr_t address, int bytes, bool store, uintptr_t place)
{
    const Matrix &X = array.operand->matrix;
    const int which = array.operand == &operands[0] ? 0 : array.operand == &operands[1] ? 1 : 2;
    const int64_t ld = X.col_stride == 1 ? X.row_stride : X.col_stride;
    const auto offset = static_cast<int64_t>((address - reinterpret_cast<uintptr_t>(X.data)) / 4);
    const int64_t line = offset / ld, first = offset % ld, last = first + (bytes - 1) / 4;
    const int64_t row = X.col_stride == 1 ? line : last, col = X.col_stride == 1 ? last : line;
    const bool last_row = row == X.rows - 1, last_col = col == X.cols - 1;
    const bool there = which == 0 ? last_row : which == 1 ? last_col : last_row && last_col;
    if (there && store == (which == 2)) {
        large.there[which] = true;
        large.place[which] = place;
    }
    if (++large_accesses > most_large_accesses) {
        block_fail(status_error(STATUS_DEVICE, "the last block has too many accesses"));
    }
}

void look(const void *pointer, int bytes, bool store, bool atomic, uintptr_t place)
{
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    latest_place = place;
    Array *const array = array_at(address);
    if (out_of_bounds.there) {
        out_of_bounds.there = false;
        tell("out of bounds", out_of_bounds.place, array ? array->name : "", out_of_bounds.text);
    }
    if (!array) {
        return; /* a thread's own variable, or an address that the processor refuses */
    }
    done.accesses[thread_number()] += blockIdx.x == 0;
    if (blockIdx.x == 0 && !store) {
        count_read(*array, address);
    }
    const char *const does = store ? "writes" : "reads";
    if (bytes <= 16 && address % static_cast<unsigned>(bytes) != 0) {
        unaligned_place = place;
        tell("unaligned", place, array->name,
             formatted(
                 "thread %d %s %d bytes at once from %s, whose address is not a multiple of %d",
                 thread_in_block(), does, bytes, element_of(*array, address).c_str(), bytes));
    }
    const uintptr_t last = address + static_cast<unsigned>(bytes) - 1;
    for (uintptr_t word = address; word <= last; word += sizeof(float)) {
        const WatchedOperand *const operand = array->operand;
        if (operand ? !inside_operand(*operand, word) : word >= array->end) {
            const int64_t rows = operand ? operand->matrix.rows : 0;
            const int64_t cols = operand ? operand->matrix.cols : 0;
            const std::string size =
                operand ? formatted("%s is %lld x %lld", array->name, static_cast<long long>(rows),
                                    static_cast<long long>(cols))
                        : formatted("%s has %lld", array->name,
                                    static_cast<long long>((array->end - array->begin) / 4));
            tell("out of bounds", place, array->name,
                 formatted("thread %d %s %s, and %s", thread_in_block(), does,
                           element_of(*array, word).c_str(), size.c_str()));
            if (operand && operand->bytes > most_recorded) {
                block_fail(status_error(STATUS_DEVICE, "an index overflows"));
            }
            return;
        }
    }
    if (array->operand && store && array->operand->input) {
        tell("writes to an input", place, array->name,
             formatted("thread %d writes %s", thread_in_block(),
                       element_of(*array, address).c_str()));
    }
    if (!store && is_unset_C(*array, address)) {
        tell("memory nobody wrote", place, array->name,
             formatted("thread %d reads %s although beta is 0", thread_in_block(),
                       element_of(*array, address).c_str()));
    }
    if (is_large(*array)) {
        look_at_large(*array, address, bytes, store, place);
        return;
    }
    if (array->operand && array->operand->input) {
        for (uintptr_t word = address; word <= last; word += sizeof(float)) {
            array->read[(word - array->begin) / sizeof(float)] = true;
        }
    } else {
        for (uintptr_t word = address / 4 * 4; word <= last; word += sizeof(float)) {
            const uintptr_t from = std::max(word, address), to = std::min(word + 3, last);
            const unsigned touched = (2u << (to - word)) - (1u << (from - word));
            look_at_word(array, from, touched, store, atomic, place);
        }
    }
}

void look_at(const void *pointer, int bytes, bool store, const void *returns_to)
{
    if (watching) {
        look(pointer, bytes, store, false, kernel_place(reinterpret_cast<uintptr_t>(returns_to)));
    }
}

/* Bytes after each shared array (annotate_assembly.py) and dynamic shared memory (grid.cpp). */
constexpr size_t redzone = 128;

void add_array(const char *name, uintptr_t begin, size_t bytes, size_t behind,
               const WatchedOperand *operand, bool scratch = false)
{
    const bool is_input = operand && operand->input;
    const size_t words = operand && bytes > most_recorded ? 0 : bytes / sizeof(float) + 1;
    arrays.push_back({name, begin, begin + bytes, behind, scratch, false,
                      std::vector<Word>(is_input ? 0 : words),
                      std::vector<bool>(is_input ? words : 0), operand});
}

/* With NaN, or with zeros. */
void fill(uintptr_t begin, size_t bytes)
{
    memset(reinterpret_cast<void *>(begin), fills_with_zeros ? 0 : 0xff, bytes);
}

size_t dynamic_bytes;

} /* namespace */

void watch_grid(const int64_t *grid); /* called by plain.h */

/* ------------------------------------------------------------------ called by grid.cpp */

void watch_block_begins()
{
    for (const SharedArray *array = __start_sgemm_shared_arrays;
         array != __stop_sgemm_shared_arrays; ++array) {
        fill(address_at(array->place), static_cast<size_t>(array->bytes));
    }
    for (int rank = 0; dynamic_bytes > 0 && rank < cluster_blocks; ++rank) {
        const auto first =
            reinterpret_cast<uintptr_t>(grid_cluster_shared(dynamic_shared_bytes, rank));
        if (blockIdx.x == 0) {
            add_array("dynamic shared memory", first, dynamic_bytes, redzone, nullptr);
        }
        fill(first, dynamic_bytes);
    }
    for (int thread = 0; thread < max_threads; ++thread) {
        std::fill_n(clocks[thread], max_threads, 0u);
        clocks[thread][thread] = 1;
        of_others[thread].clear();
        at_fence[thread].clear();
        came_with_atomics[thread].clear();
        copies_of_thread[thread].assign(1, {});
    }
    copies_of_phase.clear();
    left_at.clear();
    others_left_at.clear();
    static thread_local char stack_of_handlers[64 * 1024];
    const stack_t stack = {stack_of_handlers, 0, sizeof stack_of_handlers};
    sigaltstack(&stack, nullptr);
    watching = true;
}

void watch_block_ends()
{
    watching = false;
}

namespace {

/* Completes copies: threads that know this clock of the copying thread are ordered after them. */
void land(const std::vector<Word *> &copies, unsigned clock)
{
    for (Word *word : copies) {
        word->writer.on_its_way = false;
        word->writer.clock = std::max(word->writer.clock, clock);
    }
}

} /* namespace */

void grid_copy_commit()
{
    copies_of_thread[thread_number()].push_back({});
}

void grid_copy_wait(int left)
{
    const int thread = thread_number();
    auto &groups = copies_of_thread[thread];
    const int committed = static_cast<int>(groups.size()) - 1;
    if (committed <= left) {
        return;
    }
    const auto first = groups.begin(), end = first + (committed - left);
    bool completes = false;
    for (auto group = first; group < end; ++group) {
        land(*group, clocks[thread][thread]);
        completes = completes || !group->empty();
    }
    groups.erase(first, end);
    done.waits += blockIdx.x == 0 && completes;
    done.waits_with_more += blockIdx.x == 0 && completes && has_copies_on_their_way(thread);
}

void grid_copy_arrive(uint64_t *barrier, int line)
{
    auto &groups = copies_of_thread[thread_number()];
    auto &copies =
        copies_of_phase[reinterpret_cast<char *>(barrier) + grid_mbarrier_parity(barrier, line)];
    for (const auto &group : groups) {
        copies.insert(copies.end(), group.begin(), group.end());
        done.copied_to_mbarriers += blockIdx.x == 0 ? static_cast<int64_t>(group.size()) : 0;
    }
    groups.assign(1, {});
    grid_mbarrier_arrive(barrier, line);
}

void watch_release(const void *object)
{
    const int thread = thread_number();
    const int count = thread_count();
    std::vector<unsigned> &left = left_at[object];
    left.resize(static_cast<size_t>(count));
    for (int other = 0; other < count; ++other) {
        left[static_cast<size_t>(other)] =
            std::max(left[static_cast<size_t>(other)], clocks[thread][other]);
    }
    if (!of_others[thread].empty()) {
        add_clocks(&others_left_at[object], of_others[thread]);
    }
    ++clocks[thread][thread];
}

void watch_acquire(const void *object)
{
    const int thread = thread_number();
    const std::vector<unsigned> &left = left_at[object];
    const auto copies = copies_of_phase.find(object);
    if (copies != copies_of_phase.end()) {
        land(copies->second, 0); /* the barrier passes on the clocks of the arrived threads */
        /* A TMA copy may begin after its thread's arrival, but belongs to the same phase. */
        for (Word *word : copies->second) {
            unsigned &clock = word->writer.clock;
            const auto thread = static_cast<size_t>(word->writer.thread);
            clock = std::min(clock, thread < left.size() ? left[thread] : 0);
        }
        copies_of_phase.erase(copies);
    }
    for (size_t other = 0; other < left.size(); ++other) {
        clocks[thread][other] = std::max(clocks[thread][other], left[other]);
    }
    const auto others_left = others_left_at.find(object);
    if (others_left != others_left_at.end()) {
        add_clocks(&of_others[thread], others_left->second);
    }
}

void watch_fence()
{
    const int thread = thread_number();
    unsigned *const own = clocks[thread];
    add_clocks(&of_others[thread], came_with_atomics[thread]);
    std::vector<unsigned> &of_block = of_others[thread][this_cluster()];
    of_block.resize(static_cast<size_t>(thread_count()));
    for (size_t other = 0; other < of_block.size(); ++other) {
        of_block[other] = own[other] = std::max(own[other], of_block[other]);
    }
    at_fence[thread] = of_others[thread];
    ++own[thread];
}

void watch_barrier()
{
    done.barriers += blockIdx.x == 0 && thread_number() == 0;
    done.new_inputs[thread_number()] = 0;
}

void watch_atomic(const void *address, size_t bytes)
{
    const int thread = thread_number();
    ++done.atomics;
    const auto word = reinterpret_cast<uintptr_t>(address);
    const Array *const array = array_at(word);
    if (array && is_unset_C(*array, word)) {
        tell("memory nobody wrote", latest_place, array->name,
             formatted("thread %d adds to %s, and no thread has set it: beta is 0",
                       thread_in_block(), element_of(*array, word).c_str()));
    }
    look(address, static_cast<int>(bytes), true, true, latest_place);
    Clocks *const went = &went_with_atomics[address];
    add_clocks(went, at_fence[thread]);
    add_clocks(&came_with_atomics[thread], *went);
}

/* ------------------------------------------------------------------ a launch */

namespace {

AnyKernel watched;

/* While only the launcher runs, an access to an operand's memory is a mistake. */
void protect_operands(int protection)
{
    for (const WatchedOperand &operand : operands) {
        if (operand.memory) {
            mprotect(operand.memory, operand.bytes, protection);
        }
    }
}

void watch_thread(const void *)
{
    calls[thread_number()].depth = 0;
    latest_thread = thread_in_block();
    latest_block = blockIdx.x;
    watched.call(watched.what);
}

} /* namespace */

Status count_grid(const AnyKernel &kernel, int64_t blocks, dim3 threads, size_t shared_bytes,
                  int cluster, int, const Interrupt *interrupt, int64_t)
{
    watched = kernel;
    block_threads = threads;
    cluster_blocks = std::max(cluster, 1);
    dynamic_bytes = shared_bytes;
    ++launches;
    went_with_atomics.clear();
    arrays.erase(
        std::remove_if(arrays.begin(), arrays.end(),
                       [](const Array &array) { return !array.scratch && !array.operand; }),
        arrays.end());
    const bool begins = std::none_of(arrays.begin(), arrays.end(),
                                     [](const Array &array) { return array.operand; });
    for (const WatchedOperand &operand : operands) {
        if (begins) { /* otherwise an earlier kernel of the product has written C */
            add_array(operand.name, reinterpret_cast<uintptr_t>(operand.memory), operand.bytes, 0,
                      &operand);
        }
    }
    protect_operands(PROT_READ | PROT_WRITE);
    for (const SharedArray *array = __start_sgemm_shared_arrays;
         array != __stop_sgemm_shared_arrays; ++array) {
        add_array(array->name, address_at(array->place), static_cast<size_t>(array->bytes), redzone,
                  nullptr);
    }
    const Status status =
        run_grid({watch_thread, nullptr}, blocks, threads, shared_bytes, cluster, 1, interrupt);
    protect_operands(launcher_runs ? PROT_NONE : PROT_READ | PROT_WRITE);
    return status;
}

void watch_grid(const int64_t *grid)
{
    std::copy_n(grid, 3, grid_size);
}

void watch_launcher(bool begins)
{
    launcher_runs = begins;
    protect_operands(begins ? PROT_NONE : PROT_READ | PROT_WRITE);
}

const char *watch_orders[] = {"", nullptr};
void watch_order(int) {}

bool watch_fill_with_zeros(bool zeros)
{
    fills_with_zeros = zeros;
    return true;
}

const LargeTouch &watch_large_touch()
{
    return large;
}

void watch_print_at(const char *kind, uintptr_t place, const char *array, const char *text)
{
    print_finding(kind, place, array, -1, no_thread, no_thread, text);
}

void watch_forget_suspects()
{
    suspects.clear();
}

FaultyAccess watch_meaning_of(const void *address)
{
    const auto byte = static_cast<const char *>(address);
    for (const WatchedOperand &operand : operands) {
        if (!watching && byte >= operand.memory && byte < operand.memory + operand.bytes) {
            latest_place = 0;
            return {"launch failed", "the launcher accesses an operand on the host, and on a GPU "
                                     "it is in the GPU's memory"};
        }
    }
    if (watching && block_has_stack_at(address)) {
        return {"ended its process", "the stack overflows: a thread's arrays and calls need more "
                                     "than the 512 KB of local memory that a GPU gives a thread"};
    }
    return {"out of bounds", "the processor refuses this address, which is in no array"};
}

void name_scratch(const void *first, size_t bytes, bool zeros)
{
    add_array("scratch", reinterpret_cast<uintptr_t>(first), bytes, redzone, nullptr, true);
    arrays.back().zeros = zeros;
    if (!zeros) {
        fill(reinterpret_cast<uintptr_t>(first), bytes);
    }
}

/* Declared in ../count/counted.h; a trace counts these. */
void count_tensor_multiply_adds(int) {}

void count_copy(bool begins)
{
    copying = begins;
}

/* A TMA copy, chunk by chunk. No thread may touch its target before the barrier's phase
 * completes. */
void count_tile(void *to, const TensorMap *map, uint64_t *barrier, int, int, int line)
{
    constexpr int chunk_bytes = 16;
    const auto first = reinterpret_cast<uintptr_t>(to);
    const void *const here = __builtin_return_address(0);
    const unsigned bytes = static_cast<unsigned>(bytes_of_row(map) * map->tile_outer);
    auto &group = copies_of_thread[thread_number()].back();
    const size_t before = group.size();
    copying = true;
    for (unsigned at = 0; at < bytes; at += chunk_bytes) {
        const uintptr_t chunk = swizzled_address(first + at, map->swizzle);
        look_at(reinterpret_cast<const void *>(chunk), chunk_bytes, true, here);
    }
    copying = false;
    auto &copies =
        copies_of_phase[reinterpret_cast<char *>(barrier) + grid_mbarrier_parity(barrier, line)];
    for (size_t i = before; i < group.size(); ++i) {
        copies.push_back(group[i]);
    }
    group.resize(before);
}

/* The reads by a product of a warpgroup, in chunks of 16 bytes. The first thread of each warp
 * stands for the warp: it reads the warp's 16 rows of A and a quarter of the rows of B. */
void count_wgmma(int n, const void *a, const void *b, int swizzle)
{
    constexpr int rows = 16, warps = 4, chunks = 2, chunk_bytes = 16;
    const void *const here = __builtin_return_address(0);
    const int thread = thread_number() % warpgroup_size, warp = thread / warp_size;
    if (thread % warp_size != 0) {
        return;
    }
    const auto read = [=](const void *factor, int first, int end) {
        for (int at = first * chunks; at < end * chunks; ++at) {
            const auto linear =
                reinterpret_cast<uintptr_t>(factor) +
                static_cast<unsigned>(at / chunks * swizzle + at % chunks * chunk_bytes);
            look_at(reinterpret_cast<const void *>(swizzled_address(linear, swizzle)), chunk_bytes,
                    false, here);
        }
    };
    if (a) { /* otherwise it is in registers */
        read(a, warp * rows, (warp + 1) * rows);
    }
    read(b, warp * n / warps, (warp + 1) * n / warps);
}

void name_array(const char *name, const void *first, size_t bytes)
{
    const auto begin = reinterpret_cast<uintptr_t>(first);
    for (const Array &known : arrays) {
        if (known.begin == begin && strcmp(known.name, name) == 0) {
            return; /* another thread has named it */
        }
    }
    add_array(name, begin, bytes, 0, nullptr);
}

void watch_operands(const WatchedOperand (&now)[3])
{
    std::copy(now, now + 3, operands);
    arrays.clear();
    suspects.clear();
    done = {};
    large = {};
    large_accesses = 0;
}

void watch_print_counts()
{
    int64_t shared_bytes = 0;
    for (const SharedArray *array = __start_sgemm_shared_arrays;
         array != __stop_sgemm_shared_arrays; ++array) {
        shared_bytes += array->bytes;
    }
    const int64_t busiest = *std::max_element(done.accesses, done.accesses + max_threads);
    printf("counted");
    for (const int64_t count :
         {done.barriers, done.atomics, busiest, shared_bytes, done.shared_reads, done.reads_ahead,
          done.reads_in_flight, done.waits, done.waits_with_more, done.copied,
          done.copied_to_mbarriers}) {
        printf("\t%lld", static_cast<long long>(count));
    }
    printf("\n");
}

void watch_print_place(const char *kind, const char *text)
{
    if (latest_place == 0 || unaligned_place != latest_place) { /* otherwise reported already */
        print_finding(kind, latest_place, "", latest_block, latest_thread, no_thread, text);
    }
    fflush(stdout);
}

void watch_print_wrong(int64_t row, int64_t col, double got, double right)
{
    std::string text =
        formatted("C[%lld, %lld] is %.9g, expected %.9g", static_cast<long long>(row),
                  static_cast<long long>(col), got, right);
    uintptr_t place = 0;
    for (const Array &array : arrays) {
        if (!array.operand) {
            continue;
        }
        const Matrix &X = array.operand->matrix;
        const auto word_of = [&](int64_t i, int64_t j) {
            const float *const element = X.data + i * X.row_stride + j * X.col_stride;
            return (reinterpret_cast<uintptr_t>(element) - array.begin) / sizeof(float);
        };
        if (!array.operand->input) {
            const Touch &writer = array.words[word_of(row, col)].writer;
            place = writer.thread == no_thread ? 0 : writer.place;
            continue;
        }
        const bool is_A = array.operand == &operands[0];
        for (int64_t k = 0; k < (is_A ? X.cols : X.rows); ++k) {
            const int64_t i = is_A ? row : k, j = is_A ? k : col;
            if (!array.read[word_of(i, j)]) {
                text += formatted("; no thread reads %s[%lld, %lld]", array.name,
                                  static_cast<long long>(i), static_cast<long long>(j));
                break;
            }
        }
    }
    print_finding("wrong values", place, "C", -1, no_thread, no_thread, text);
}

void watch_print_suspects()
{
    if (arrays.empty()) {
        print_finding("never set", 0, "C", -1, no_thread, no_thread, "no kernel was launched");
    }
    for (const auto &entry : suspects) {
        const Suspect &suspect = entry.second;
        print_finding("memory nobody wrote", suspect.place, entry.first.second, suspect.block,
                      suspect.thread, no_thread, suspect.text);
    }
    for (const Array &array : arrays) {
        if (!array.operand || array.operand->input) {
            continue;
        }
        const Matrix &C = array.operand->matrix;
        for (int64_t row = 0; row < C.rows; ++row) {
            for (int64_t col = 0; col < C.cols; ++col) {
                const auto address =
                    reinterpret_cast<uintptr_t>(C.data + row * C.row_stride + col * C.col_stride);
                if (array.words[(address - array.begin) / sizeof(float)].writer.thread ==
                    no_thread) {
                    print_finding("never set", 0, "C", -1, no_thread, no_thread,
                                  formatted("no thread writes C[%lld, %lld]",
                                            static_cast<long long>(row),
                                            static_cast<long long>(col)));
                    return;
                }
            }
        }
    }
}

/* ------------------------------------------------------------------ called by compiled code */

#define LOOKS(bytes)                                                                               \
    void __tsan_read##bytes(void *address)                                                         \
    {                                                                                              \
        look_at(address, bytes, false, __builtin_return_address(0));                               \
    }                                                                                              \
    void __tsan_write##bytes(void *address)                                                        \
    {                                                                                              \
        look_at(address, bytes, true, __builtin_return_address(0));                                \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *address)                                               \
    {                                                                                              \
        look_at(address, bytes, false, __builtin_return_address(0));                               \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *address)                                              \
    {                                                                                              \
        look_at(address, bytes, true, __builtin_return_address(0));                                \
    }

extern "C" {
LOOKS(1)
LOOKS(2)
LOOKS(4)
LOOKS(8)
LOOKS(16)

void __tsan_read_range(void *address, unsigned long bytes)
{
    look_at(address, static_cast<int>(bytes), false, __builtin_return_address(0));
}
void __tsan_write_range(void *address, unsigned long bytes)
{
    look_at(address, static_cast<int>(bytes), true, __builtin_return_address(0));
}
void *count_memcpy(void *to, const void *from, size_t bytes)
{
    look_at(from, static_cast<int>(bytes), false, __builtin_return_address(0));
    look_at(to, static_cast<int>(bytes), true, __builtin_return_address(0));
    return memcpy(to, from, bytes);
}
void __tsan_func_entry(void *returns_to)
{
    if (watching) {
        Calls *const own = &calls[thread_number()];
        if (own->depth == 2) {
            own->in_kernel = reinterpret_cast<uintptr_t>(returns_to);
        }
        ++own->depth;
    }
}
void __tsan_func_exit()
{
    if (watching) {
        --calls[thread_number()].depth;
    }
}
void __tsan_init() {}

/* Called at each basic block. */
void __sanitizer_cov_trace_pc()
{
    if (watching) {
        latest_place = kernel_place(reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
        latest_thread = thread_in_block();
        latest_block = blockIdx.x;
    }
}

/* The layout that gcc and clang use. */
struct IndexSite {
    const char *file;
    uint32_t line, column;
    const struct {
        uint16_t kind, info;
        char name[1];
    } * array, *index;
};
void __ubsan_handle_out_of_bounds(IndexSite *site, uintptr_t index)
{
    if (watching) {
        const char *const type = site->array->name;
        const auto number = static_cast<long long>(static_cast<intptr_t>(index));
        out_of_bounds = {true,
                         kernel_place(reinterpret_cast<uintptr_t>(__builtin_return_address(0))),
                         formatted("thread %d takes element %lld of what is %s", thread_in_block(),
                                   number, type)};
        latest_place = out_of_bounds.place;
    }
}
void __ubsan_handle_out_of_bounds_abort(IndexSite *site, uintptr_t index)
{
    __ubsan_handle_out_of_bounds(site, index);
}
}
