/* Runs the launches of a watched kernel: sanitizer.h says what is checked. Its parts are in
 * sanitizer_*.cpp and share sanitizer_parts.h. */
#include "sanitizer.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "sanitizer_parts.h"

/* Tables in the kernel's object, written by sgemm_kernels/custom/annotate_assembly.py. */
struct NamedArray {
    int32_t place;
    int32_t bytes;
    char name[24];
};
extern "C" {
extern const NamedArray __start_sgemm_shared_arrays[], __stop_sgemm_shared_arrays[];
extern const NamedArray __start_sgemm_device_arrays[], __stop_sgemm_device_arrays[];
}

Running threads_state[max_threads];
Running *running = threads_state;
volatile Site latest_site;
volatile int latest_thread;
volatile int64_t latest_block;
volatile Site unaligned_site;
dim3 block_threads = 0;
int cluster_blocks = 1;
bool watching;
int64_t launches;
uint32_t blocks_begun;

namespace {

AnyKernel watched;
size_t dynamic_bytes;
bool launch_ended;  /* the latest one, without an error */
bool launcher_runs; /* the host's code between the kernels of a product */

uintptr_t address_of(const NamedArray &array)
{
    return reinterpret_cast<uintptr_t>(&array.place) + static_cast<intptr_t>(array.place);
}

/* While only the launcher runs, an access to an operand's memory is a mistake. */
void protect_operands(int protection)
{
    for (const SanitizerOperand &operand : operands) {
        if (operand.memory) {
            mprotect(operand.memory, operand.bytes, protection);
        }
    }
}

/* Variables of the file itself, which all blocks and products share. They have a value at first. */
void add_device_arrays()
{
    for (const NamedArray *array = __start_sgemm_device_arrays; array != __stop_sgemm_device_arrays;
         ++array) {
        add_array(array->name, address_of(*array), static_cast<size_t>(array->bytes), redzone,
                  nullptr, true);
        arrays.back().zeros = true;
    }
}

void sanitize_thread(const void *)
{
    running->depth = 0;
    latest_thread = thread_in_block();
    latest_block = blockIdx.x;
    watched.call(watched.what);
}

} // namespace

int threads_of_block()
{
    return static_cast<int>(block_threads.x * block_threads.y * block_threads.z);
}

int thread_in_block()
{
    return static_cast<int>((threadIdx.z * block_threads.y + threadIdx.y) * block_threads.x +
                            threadIdx.x);
}

int thread_count()
{
    return cluster_blocks * threads_of_block();
}

int64_t this_cluster()
{
    const int rank = cluster_blocks > 1 ? grid_cluster_rank() : 0;
    return launches << 32 | (blockIdx.x - static_cast<unsigned>(rank));
}

long long block_of(int64_t cluster, int thread)
{
    return static_cast<uint32_t>(cluster) + thread / threads_of_block();
}

/* ------------------------------------------------------------------ called by the CPU device */

void sanitize_block_begins()
{
    ++blocks_begun;
    for (const NamedArray *array = __start_sgemm_shared_arrays; array != __stop_sgemm_shared_arrays;
         ++array) {
        fill(address_of(*array), static_cast<size_t>(array->bytes));
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
        Running &state = threads_state[thread];
        state.number = thread;
        state.step = state.access_at = 0;
        state.latest = state.access = 0;
        state.idle.clear();
        state.all = {};
    }
    order_block_begins();
    products_block_begins();
    rounds_block_begins();
    static thread_local char stack_of_handlers[64 * 1024];
    const stack_t stack = {stack_of_handlers, 0, sizeof stack_of_handlers};
    sigaltstack(&stack, nullptr);
    watching = true;
}

void sanitize_block_ends()
{
    watching = false;
}

void sanitize_thread_runs()
{
    running = &threads_state[block_thread()];
}

Status traced_grid(const AnyKernel &kernel, int64_t blocks, dim3 threads, size_t shared_bytes,
                   int cluster, int, const Interrupt *interrupt, int64_t)
{
    watched = kernel;
    block_threads = threads;
    cluster_blocks = std::max(cluster, 1);
    dynamic_bytes = shared_bytes;
    ++launches;
    order_launch_begins();
    arrays.erase(
        std::remove_if(arrays.begin(), arrays.end(),
                       [](const Array &array) { return !array.scratch && !array.operand; }),
        arrays.end());
    const bool begins = std::none_of(arrays.begin(), arrays.end(),
                                     [](const Array &array) { return array.operand; });
    for (const SanitizerOperand &operand : operands) {
        if (begins) { /* otherwise an earlier kernel of the product has written C */
            add_array(operand.name, reinterpret_cast<uintptr_t>(operand.memory), operand.bytes, 0,
                      &operand);
        }
    }
    if (begins) {
        add_device_arrays();
    }
    protect_operands(PROT_READ | PROT_WRITE);
    for (const NamedArray *array = __start_sgemm_shared_arrays; array != __stop_sgemm_shared_arrays;
         ++array) {
        add_array(array->name, address_of(*array), static_cast<size_t>(array->bytes), redzone,
                  nullptr);
    }
    const Status status =
        run_grid({sanitize_thread, nullptr}, blocks, threads, shared_bytes, cluster, 1, interrupt);
    launch_ended = status.code == STATUS_OK;
    protect_operands(launcher_runs ? PROT_NONE : PROT_READ | PROT_WRITE);
    return status;
}

/* ------------------------------------------------------------------ declared in traced.h */

void traced_tensor_multiply_adds(int) {}

void traced_copy(bool begins)
{
    copying = begins;
}

void name_scratch(const void *first, size_t bytes, bool zeros)
{
    add_array("scratch", reinterpret_cast<uintptr_t>(first), bytes, redzone, nullptr, true);
    arrays.back().zeros = zeros;
    if (!zeros) {
        fill(reinterpret_cast<uintptr_t>(first), bytes);
    }
}

void sanitizer_scratch_freed(const void *first)
{
    Array *const array = array_at(reinterpret_cast<uintptr_t>(first));
    if (!array || !array->scratch) {
        return;
    }
    if (array->given) {
        print_finding("scratch memory", 0, "scratch", -1, no_thread, no_thread,
                      "the launcher gives it back twice");
        fflush(stdout);
        _exit(3); /* as driver.cpp does after a finding */
    }
    array->given = true;
    if (!array->zeros || !launch_ended) {
        return;
    }
    const auto *const counters = static_cast<const unsigned *>(first);
    for (size_t i = 0; i < (array->end - array->begin) / sizeof *counters; ++i) {
        if (counters[i]) {
            print_finding("scratch memory", array->words[i].writer.site, "scratch", -1, no_thread,
                          no_thread,
                          formatted("counter %zu is %u after the product: the next product takes "
                                    "it as zero, so the last block must reset it, as atomicInc "
                                    "does",
                                    i, counters[i]));
            return;
        }
    }
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

void name_dynamic_shared(const char *name, const void *first, size_t bytes)
{
    name_array(name, first, bytes); /* array_at begins with the latest: the arrays in it */
}

/* ------------------------------------------------------------------ called by driver.cpp */

const char *sanitizer_orders[] = {"", nullptr};
void sanitizer_order(int) {}

void sanitizer_launcher(bool begins)
{
    launcher_runs = begins;
    protect_operands(begins ? PROT_NONE : PROT_READ | PROT_WRITE);
}

bool sanitizer_fill_with_zeros(bool zeros)
{
    fills_with_zeros = zeros;
    return true;
}

FaultyAccess sanitizer_meaning_of(const void *address)
{
    const auto byte = static_cast<const char *>(address);
    for (const SanitizerOperand &operand : operands) {
        if (!watching && byte >= operand.memory && byte < operand.memory + operand.bytes) {
            latest_site = 0;
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

void sanitizer_operands(const SanitizerOperand (&now)[3], double multiply_adds)
{
    sanitizer_hooks = {
        .block_begins = sanitize_block_begins,
        .block_ends = sanitize_block_ends,
        .release = sanitize_release,
        .acquire = sanitize_acquire,
        .fence = sanitize_fence,
        .atomic = sanitize_atomic,
        .called_from = sanitize_called_from,
        .barrier = sanitize_barrier,
        .thread_runs = sanitize_thread_runs,
        .named_barrier = sanitize_named_barrier,
        .two_barriers = sanitize_two_barriers,
        .mbarrier = sanitize_mbarrier,
        .product = sanitize_product,
        .product_commit = sanitize_product_commit,
        .product_wait = sanitize_product_wait,
    };
    rounds_product_begins(multiply_adds);
    std::copy(now, now + 3, operands);
    sanitizer_forget_suspects();
    memory_product_begins();
}

void sanitizer_print_counts()
{
    int64_t shared_bytes = 0;
    for (const NamedArray *array = __start_sgemm_shared_arrays; array != __stop_sgemm_shared_arrays;
         ++array) {
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
