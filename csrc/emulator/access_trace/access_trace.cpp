#include "access_trace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <map>
#include <new>
#include <numeric>
#include <string_view>
#include <tuple>
#include <vector>

#include "../grid.h"
#include "traced.h"
#undef run_grid

/* Tables that build_backend/annotation.py adds to each object: the source line for every return
 * address, and every shared array. Each `place` is relative to its own address. */
struct CallSite {
    int32_t place;
    int32_t file; /* relative place of the name */
    int32_t line;
};
struct SharedArray {
    int32_t place;
    int32_t bytes;
    char name[OPERAND_BYTES];
};
#pragma GCC visibility push(hidden)
extern "C" {
extern const CallSite __start_sgemm_call_sites[], __stop_sgemm_call_sites[];
extern const SharedArray __start_sgemm_shared_arrays[], __stop_sgemm_shared_arrays[];
extern const Variant *const __start_sgemm_traced[], *const __stop_sgemm_traced[];
}
#pragma GCC visibility pop

namespace {

constexpr int max_threads = 1024;
constexpr int most_bytes = 16; /* widest access of a GPU instruction */
constexpr int chunk_bytes = 16;
constexpr int64_t sector_bytes = 32;
constexpr int64_t line_bytes = 128;
constexpr int64_t bank_bytes = 4;
constexpr int64_t row_of_banks = 32 * bank_bytes; /* bytes per wavefront */
constexpr int64_t row_of_scratch = 1024;          /* arbitrary: scratch memory has no rows */

struct Array {
    uintptr_t begin, end;
    const char *name;
    int64_t row_bytes;
    bool shared;
};

/* Offset in an array. A local type, so that template instances of its containers stay in this
 * file. */
struct Offset {
    int64_t bytes;
};

/* One access in the source, and its executions by the threads of the current warp since the last
 * barrier. */
struct Site {
    int access; /* index in counts */
    std::vector<Offset> offsets[WARP];
};

/* The call stack of a CUDA thread. Level 1 is call_kernel, level 2 is the kernel. */
struct Calls {
    int depth;
    uintptr_t in_kernel; /* return address of level 3, inside the kernel */
};

struct Counter {
    AnyKernel kernel;
    dim3 threads = 0;
    int64_t blocks = 0; /* for each matrix of a batch */
    int cluster = 1;    /* blocks per cluster */
    Counts *counts;
    Status status = status_ok();
    Sgemm block;
    Matrix results;           /* block.C, or what replaces it (name_operand) */
    std::deque<Array> arrays; /* a deque, since elements must not move when one is added */
    Array dynamic = {};       /* dynamic shared memory, outside the arrays in it */
    uintptr_t shared_begin = UINTPTR_MAX, shared_end = 0; /* range of all shared arrays */
    std::map<std::tuple<uintptr_t, uintptr_t, const Array *>, Site> sites;
    int launch = 0;
    int64_t warp =
        0; /* the warp whose accesses are in `sites`; unique over all blocks of a launch */
    Calls calls[max_threads] = {};
    bool copying = false; /* the current accesses are an asynchronous copy */
};

pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
Counter *counter; /* NULL while trace_block is not running */

int thread_number()
{
    const dim3 &extent = counter->threads;
    return static_cast<int>((threadIdx.z * extent.y + threadIdx.y) * extent.x + threadIdx.x);
}

/* The call stack of the running thread. All threads of a cluster are alive at the same time. */
Calls *own_calls()
{
    const dim3 &extent = counter->threads;
    const int of_others =
        counter->cluster > 1
            ? grid_cluster_rank() * static_cast<int>(extent.x * extent.y * extent.z)
            : 0;
    return &counter->calls[of_others + thread_number()];
}

uintptr_t address_at(const int32_t &place)
{
    return reinterpret_cast<uintptr_t>(&place) + static_cast<intptr_t>(place);
}

uintptr_t address_of(const Matrix &matrix)
{
    return reinterpret_cast<uintptr_t>(matrix.data);
}

/* Address of a chunk in a row of a swizzled tile. */
const void *in_shared(const void *first_line, int line, int chunk, int swizzle)
{
    const uintptr_t linear = reinterpret_cast<uintptr_t>(first_line) +
                             static_cast<unsigned>(line * swizzle + chunk * chunk_bytes);
    return reinterpret_cast<const void *>(swizzled_address(linear, swizzle));
}

struct Line {
    const char *file;
    int number;
};

Line line_of_call(uintptr_t returns_to)
{
    for (const CallSite *site = __start_sgemm_call_sites; site != __stop_sgemm_call_sites; ++site) {
        if (address_at(site->place) == returns_to) {
            return {reinterpret_cast<const char *>(address_at(site->file)), site->line};
        }
    }
    return {"", 0};
}

/* ------------------------------------------------------------------ one request */

/* The distinct blocks of `size` bytes that some lanes of a request touch. */
struct Pieces {
    int64_t numbers[WARP * most_bytes / bank_bytes];
    int64_t count = 0;

    Pieces(const int64_t *offsets, int first_lane, int lanes, int bytes, int64_t size)
    {
        for (int lane = first_lane; lane < first_lane + lanes; ++lane) {
            for (int64_t byte = 0; offsets[lane] >= 0 && byte < bytes; byte += bank_bytes) {
                numbers[count++] = (offsets[lane] + byte) / size;
            }
        }
        std::sort(numbers, numbers + count);
        count = std::unique(numbers, numbers + count) - numbers;
    }
};

void count_sectors(const int64_t *offsets, Access *access)
{
    const Pieces words(offsets, 0, WARP, access->bytes, bank_bytes);
    const Pieces sectors(offsets, 0, WARP, access->bytes, sector_bytes);
    const Pieces lines(offsets, 0, WARP, access->bytes, line_bytes);
    access->transactions += sectors.count;
    access->lines += lines.count;
    access->least += (words.count * bank_bytes + sector_bytes - 1) / sector_bytes;
}

/* True if each active lane accesses the same offset as lane ^ distance, unless that lane is
 * inactive. */
bool asks_like(const int64_t *offsets, int lanes, int distance)
{
    for (int lane = 0; lane < lanes; ++lane) {
        const int64_t own = offsets[lane], other = offsets[lane ^ distance];
        if (own >= 0 && other >= 0 && own != other) {
            return false;
        }
    }
    return true;
}

/* A warp is split so that each group accesses at most 128 bytes: half-warps for 8 bytes per thread,
 * quarter-warps for 16. Two quarters of a half-warp are processed together if threads load the same
 * data in pairs: each the same as lane ^ 1, or each the same as lane ^ 2. The counters of an H200
 * show this (benchmarks/results/h200/traffic.json). In each group, a bank delivers one word per
 * wavefront to every thread that needs it. */
void count_wavefronts(const int64_t *offsets, Access *access)
{
    const int narrowest = access->bytes <= 4 ? WARP : access->bytes <= 8 ? WARP / 2 : WARP / 4;
    for (int first = 0, lanes; first < WARP; first += lanes) {
        const int64_t *const half = offsets + first;
        const bool pairs = access->bytes == 16 && !access->store && first % (WARP / 2) == 0 &&
                           (asks_like(half, WARP / 2, 1) || asks_like(half, WARP / 2, 2));
        lanes = pairs ? WARP / 2 : narrowest;
        const Pieces words(offsets, first, lanes, access->bytes, bank_bytes);
        int64_t words_of_bank[WARP] = {};
        int64_t most = 0;
        for (int64_t index = 0; index < words.count; ++index) {
            most = std::max(most, ++words_of_bank[words.numbers[index] % WARP]);
        }
        access->transactions += most;
        access->least += most > 0;
    }
}

void count_warp()
{
    for (auto &entry : counter->sites) {
        Site &site = entry.second;
        Access *const access = &counter->counts->accesses[site.access];
        size_t times = 0;
        for (const auto &offsets : site.offsets) {
            times = std::max(times, offsets.size());
        }
        for (size_t time = 0; time < times; ++time) {
            int64_t request[WARP];
            for (int lane = 0; lane < WARP; ++lane) {
                const auto &offsets = site.offsets[lane];
                request[lane] = time < offsets.size() ? offsets[time].bytes : -1;
                access->lanes += request[lane] >= 0;
            }
            if (access->requests++ == 0) {
                std::copy_n(request, WARP, access->first);
            }
            access->shared ? count_wavefronts(request, access) : count_sectors(request, access);
        }
        for (auto &offsets : site.offsets) {
            offsets.clear();
        }
    }
}

/* ------------------------------------------------------------------ recording accesses */

Array shared_array(Counter *to, const char *name, uintptr_t begin, size_t bytes)
{
    to->shared_begin = std::min(to->shared_begin, begin);
    to->shared_end = std::max(to->shared_end, begin + bytes);
    return {begin, begin + bytes, name, row_of_banks, true};
}

/* The matrices come first in the list, so most searches end early. */
const Array *array_at(uintptr_t address)
{
    const bool shared = counter->shared_begin <= address && address < counter->shared_end;
    const auto holds = [address](const Array &array) {
        return array.begin <= address && address < array.end;
    };
    for (const Array &array : counter->arrays) {
        if (array.shared && !shared) {
            break;
        }
        if (holds(array)) {
            return &array;
        }
    }
    return holds(counter->dynamic) ? &counter->dynamic : nullptr;
}

/* Index in the counts for one line, array, direction and width in this launch. -1 if there are too
 * many, or if no GPU has an access of that width. */
int find_access(const Line &line, const Array &array, bool store, int bytes)
{
    Counts *const counts = counter->counts;
    for (int index = 0; index < counts->count; ++index) {
        const Access &known = counts->accesses[index];
        if (known.launch == counter->launch && known.line == line.number &&
            strcmp(known.file, line.file) == 0 && known.store == store && known.bytes == bytes &&
            known.shared == array.shared && known.copied == counter->copying &&
            strcmp(known.operand, array.name) == 0) {
            return index;
        }
    }
    if (counts->count == MOST_ACCESSES || bytes > most_bytes) {
        return -1;
    }
    Access *const fresh = &counts->accesses[counts->count];
    *fresh = {};
    fresh->file = line.file;
    fresh->line = line.number;
    fresh->launch = counter->launch;
    fresh->shared = array.shared;
    fresh->store = store;
    fresh->copied = counter->copying;
    fresh->bytes = bytes;
    fresh->row_bytes = array.row_bytes;
    strncpy(fresh->operand, array.name, OPERAND_BYTES - 1);
    return counts->count++;
}

Status out_of_memory()
{
    return status_error(STATUS_OUT_OF_MEMORY, "no host memory to count a kernel's accesses");
}

void fail(const Status &status)
{
    counter->status = status;
    counter->arrays.clear(); /* ignore all further accesses */
    counter->dynamic = {};
    counter->sites.clear();
}

/* Records which thread stored these bytes of C, of a batch's first C. */
void note_owner(int64_t offset, int bytes, int thread)
{
    const Matrix &C = counter->results;
    const bool by_columns = C.col_stride != 1;
    const int64_t ld = by_columns ? C.col_stride : C.row_stride;
    for (int64_t element = offset / 4; element < (offset + bytes) / 4; ++element) {
        const int64_t line = element / ld, place = element % ld;
        const int64_t row = by_columns ? place : line, col = by_columns ? line : place;
        if (row < C.rows && col < C.cols) {
            counter->counts->owners[row * C.cols + col] = static_cast<int16_t>(thread);
        }
    }
}

/* Records an access for a lane of this thread's warp. */
void note_of_lane(int lane, const void *pointer, int bytes, bool store, const void *returns_to)
{
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const Array *const array = array_at(address);
    if (!array) {
        return; /* a local variable, which a GPU keeps in a register */
    }
    try {
        const int thread = thread_number();
        const int64_t block = blockIdx.y * counter->blocks + blockIdx.x;
        const int64_t warp = block * (max_threads / WARP) + thread / WARP;
        if (warp != counter->warp) {
            count_warp(); /* all its threads have reached the same barrier or finished */
            counter->warp = warp;
        }
        const Calls &calls = *own_calls();
        const auto here = reinterpret_cast<uintptr_t>(returns_to);
        const uintptr_t in_kernel = calls.depth > 2 ? calls.in_kernel : here;
        const auto found = counter->sites.try_emplace({in_kernel, here, array});
        Site *const site = &found.first->second;
        if (found.second) {
            site->access = find_access(line_of_call(in_kernel), *array, store, bytes);
        }
        if (site->access < 0) {
            fail(status_error(STATUS_DEVICE,
                              "cannot count the kernel: it has an access of %d bytes, or more "
                              "than %d different accesses",
                              bytes, MOST_ACCESSES));
        } else {
            const auto offset = static_cast<int64_t>(address - array->begin);
            site->offsets[lane].push_back({offset});
            if (store && address_of(counter->results) == array->begin) {
                note_owner(offset, bytes, thread);
            }
        }
    } catch (const std::bad_alloc &) {
        fail(out_of_memory());
    }
}

void note(const void *pointer, int bytes, bool store, const void *returns_to)
{
    if (counter) {
        note_of_lane(thread_number() % WARP, pointer, bytes, store, returns_to);
    }
}

void enter(const void *returns_to)
{
    if (counter) {
        Calls *const calls = own_calls();
        if (calls->depth == 2) {
            calls->in_kernel = reinterpret_cast<uintptr_t>(returns_to);
        }
        ++calls->depth;
    }
}

void leave()
{
    if (counter) {
        --own_calls()->depth;
    }
}

/* Runs one thread of the kernel. */
void count_thread(const void *)
{
    own_calls()->depth = 0;
    counter->kernel.call(counter->kernel.what);
}

} /* namespace */

Status traced_grid(const AnyKernel &kernel, int64_t blocks, dim3 threads, size_t shared_bytes,
                   int cluster, int, const Interrupt *interrupt, int64_t matrices)
{
    const size_t lasting = counter->arrays.size();
    counter->kernel = kernel;
    counter->threads = threads;
    counter->blocks = blocks;
    counter->cluster = cluster;
    const Status status = run_grid({count_thread, nullptr}, blocks, threads, shared_bytes, cluster,
                                   1, interrupt, matrices);
    counter->cluster = 1; /* the launching thread also makes calls, and is in no cluster */
    if (counter->status.code != STATUS_OK) {
        return counter->status;
    }
    count_warp();
    counter->sites.clear(); /* they point to arrays in dynamic shared memory */
    counter->arrays.resize(lasting);
    counter->dynamic = {};
    ++counter->launch;
    return status;
}

void name_array(const char *name, const void *first, size_t bytes)
{
    const auto begin = reinterpret_cast<uintptr_t>(first);
    for (const Array &known : counter->arrays) {
        if (known.begin == begin) {
            return; /* another thread has added it */
        }
    }
    try {
        counter->arrays.push_back(shared_array(counter, name, begin, bytes));
    } catch (const std::bad_alloc &) {
        fail(out_of_memory());
    }
}

void name_dynamic_shared(const char *name, const void *first, size_t bytes)
{
    counter->dynamic = shared_array(counter, name, reinterpret_cast<uintptr_t>(first), bytes);
}

void name_scratch(const void *first, size_t bytes, bool)
{
    const auto begin = reinterpret_cast<uintptr_t>(first);
    try { /* in front, since matrices and scratch precede the shared arrays */
        counter->arrays.push_front({begin, begin + bytes, "scratch", row_of_scratch, false});
    } catch (const std::bad_alloc &) {
        fail(out_of_memory());
    }
}

void name_operand(const char *name, const Matrix &X, size_t bytes)
{
    const auto begin = reinterpret_cast<uintptr_t>(X.data);
    const int64_t ld = X.col_stride == 1 ? X.row_stride : X.col_stride;
    for (Array &known : counter->arrays) {
        if (!known.shared && strcmp(known.name, name) == 0) {
            known = {begin, begin + bytes, name, ld * static_cast<int64_t>(sizeof(float)), false};
        }
    }
    if (strcmp(name, "C") == 0) {
        const Matrix &C = counter->block.C;
        counter->results = {X.data, C.rows, C.cols, X.row_stride, X.col_stride};
    }
}

void traced_copy(bool begins)
{
    counter->copying = begins;
}

void traced_tensor_multiply_adds(int number)
{
    counter->counts->tensor_multiply_adds += number;
}

/* Counts chunk by chunk. Chunks outside the tensor are only written, as zeros. */
void traced_tile(void *to, const TensorMap *map, uint64_t *, int x, int y, int z, int)
{
    const void *const here = __builtin_return_address(0);
    const int in_row = bytes_of_row(map) / chunk_bytes;
    traced_copy(true);
    for (int chunk = 0; chunk < in_row * map->tile_outer; ++chunk) {
        const int64_t row = int64_t{y} + chunk / in_row;
        const int64_t col = int64_t{x} + chunk % in_row * (chunk_bytes / map->element_bytes);
        if (row < static_cast<int64_t>(map->outer) && col < static_cast<int64_t>(map->inner)) {
            const char *const from = static_cast<const char *>(map->data) +
                                     row * static_cast<int64_t>(map->pitch) +
                                     (z < 0 ? 0 : z * static_cast<int64_t>(map->matrix_pitch)) +
                                     col * map->element_bytes;
            note_of_lane(chunk % WARP, from, chunk_bytes, false, here);
        }
        note_of_lane(chunk % WARP, in_shared(to, 0, chunk, map->swizzle), chunk_bytes, true, here);
    }
    traced_copy(false);
}

/* A warp reads its 16 rows of A. The warpgroup reads B once, so each warp counts 16 of every 64
 * rows. */
void traced_wgmma(int n, const void *a, const void *b, int swizzle)
{
    constexpr int warpgroup = 4 * WARP, lines = 64, depth = 16;
    const void *const here = __builtin_return_address(0);
    const int thread = thread_number() % warpgroup;
    const int line = thread / WARP * 16 + thread % 16, chunk = thread % WARP / 16;
    if (a) {
        note(in_shared(a, line, chunk, swizzle), chunk_bytes, false, here);
    }
    for (int first = 0; first + line < n; first += lines) {
        note(in_shared(b, first + line, chunk, swizzle), chunk_bytes, false, here);
    }
    traced_tensor_multiply_adds(lines * n * depth / warpgroup);
}

/* ------------------------------------------------------------------ ThreadSanitizer's functions */

#define OBSERVE note
#include "../tsan_calls.h"

extern "C" {
void __tsan_func_entry(void *returns_to)
{
    enter(returns_to);
}
void __tsan_func_exit()
{
    leave();
}
void __tsan_init() {}
}

/* ------------------------------------------------------------------ one block */

namespace {

/* Lays out the first `rows` rows of a matrix as the CUDA device would, or of each matrix of a batch
 * of M x N matrices. Only pages that are touched take memory. */
bool lay_out(int64_t batch, int64_t M, int64_t N, int64_t rows, bool contiguous, Matrix *matrix,
             size_t *bytes)
{
    int64_t batch_stride = 0, before_last, of_last, elements;
    if (N > INT64_MAX - 3) {
        return false;
    }
    const int64_t ld = contiguous ? N : leading_dimension_in(ELEMENT_FLOAT32, batch, N);
    if ((batch > 1 && __builtin_mul_overflow(M, ld, &batch_stride)) ||
        __builtin_mul_overflow(batch_stride, batch - 1, &before_last) ||
        __builtin_mul_overflow(rows, ld, &of_last) ||
        __builtin_add_overflow(before_last, of_last, &elements) ||
        __builtin_mul_overflow(elements, sizeof(float), bytes)) {
        return false;
    }
    void *const memory = mmap(nullptr, *bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    *matrix = {static_cast<float *>(memory), rows, N, ld, 1, batch_stride};
    return true;
}

Array array_of(const char *name, const Matrix &matrix, size_t bytes)
{
    const uintptr_t begin = address_of(matrix);
    const auto row_bytes = matrix.row_stride * static_cast<int64_t>(sizeof(float));
    return {begin, begin + bytes, name, row_bytes, false};
}

/* Launches products of the batch: as many at once as the variant takes. All launches have the same
 * kernels. */
Status count_products(const Variant *variant, int64_t first, int64_t end, const Launch &where)
{
    const size_t lasting = counter->arrays.size();
    while (first < end) {
        const int64_t count = std::min<int64_t>(end - first, variant->batch);
        const Sgemm part = part_of_batch(&counter->block, first, count);
        counter->launch = 0;
        const Status status = variant->launch[DEVICE_CPU](&part, &where);
        if (status.code != STATUS_OK) {
            return status;
        }
        while (counter->arrays.size() > lasting) {
            counter->arrays.pop_front(); /* scratch memory, which the launch has freed */
        }
        first += count;
    }
    return status_ok();
}

/* The number of products after which A, B and C begin at the same places of a cache line again.
 * Later products repeat the accesses of earlier ones. */
int64_t period_of(const Sgemm &batch)
{
    int64_t same = line_bytes / static_cast<int64_t>(sizeof(float));
    const int64_t longest = same;
    for (const Matrix *matrix : {&batch.A, &batch.B, &batch.C}) {
        same = std::gcd(same, matrix->batch_stride);
    }
    return longest / same;
}

/* Makes the counts of one period the counts of `times` periods and the rest. */
void count_periods(int64_t times, const Counts &rest, Counts *counts)
{
    counts->tensor_multiply_adds = times * counts->tensor_multiply_adds + rest.tensor_multiply_adds;
    for (int index = 0; index < counts->count; ++index) {
        for (const auto number : {&Access::requests, &Access::lanes, &Access::transactions,
                                  &Access::lines, &Access::least}) {
            counts->accesses[index].*number =
                times * counts->accesses[index].*number + rest.accesses[index].*number;
        }
    }
}

Status count_batch(const Variant *variant, const Launch &where)
{
    const int64_t batch = counter->block.count, period = period_of(counter->block);
    Status status = count_products(variant, 0, batch % period, where);
    if (status.code == STATUS_OK && batch >= period) {
        const Counts rest = *counter->counts;
        status = count_products(variant, batch % period, period, where);
        count_periods(batch / period, rest, counter->counts);
    }
    return status;
}

Status count_launches(const Variant *variant, const Sgemm &block, const size_t (&bytes)[3],
                      const Interrupt *interrupt, Counts *counts)
{
    try {
        Counter fresh;
        fresh.counts = counts;
        fresh.block = block;
        fresh.results = block.C;
        fresh.arrays = {array_of("A", block.A, bytes[0]), array_of("B", block.B, bytes[1]),
                        array_of("C", block.C, bytes[2])};
        for (const SharedArray *array = __start_sgemm_shared_arrays;
             array != __stop_sgemm_shared_arrays; ++array) {
            fresh.arrays.push_back(shared_array(&fresh, array->name, address_at(array->place),
                                                static_cast<size_t>(array->bytes)));
        }
        threadIdx = {}; /* this OS thread may have run a small product before */
        counter = &fresh;
        const Launch where = {0, nullptr, interrupt, {}, false};
        const Status status = count_batch(variant, where);
        counter = nullptr;
        return status;
    } catch (const std::bad_alloc &) {
        counter = nullptr;
        return out_of_memory();
    }
}

} /* namespace */

/* A forked child has only one thread, and that one is not counting. */
static void forget_trace()
{
    one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    counter = nullptr;
}

Status trace_block(const Variant *variant, int64_t batch, int64_t M, int64_t N, int64_t K,
                   const Interrupt *interrupt, Counts *counts)
{
    static const int watches_forks = pthread_atfork(nullptr, nullptr, forget_trace);
    if (watches_forks != 0) {
        return status_error(STATUS_OUT_OF_MEMORY, "no host memory to register a fork handler");
    }
    const Variant *const *counted = __start_sgemm_traced;
    while (counted != __stop_sgemm_traced && strcmp((*counted)->name, variant->name) != 0) {
        ++counted;
    }
    if (counted == __stop_sgemm_traced) {
        return status_error(STATUS_UNSUPPORTED,
                            "'%s' has no kernel of its own: pass a kernel that it can choose",
                            variant->name);
    }
    const int *const tile = variant->spec.block_tile;
    if (tile[0] < 1 || tile[1] < 1) {
        return status_error(
            STATUS_UNSUPPORTED,
            "the KernelSpec of '%s' has a block_tile of %d x %d, so the results of its first "
            "block are unknown: set block_tile to trace the kernel",
            variant->name, tile[0], tile[1]);
    }
    /* The first block equals a smaller product in rows with the same stride. */
    counts->count = 0;
    counts->tensor_multiply_adds = 0;
    counts->rows = std::min<int64_t>(M, tile[0]);
    counts->cols = std::min<int64_t>(N, tile[1]);

    const auto results = static_cast<size_t>(counts->rows * counts->cols);
    counts->owners = static_cast<int16_t *>(malloc(results * sizeof *counts->owners));
    if (!counts->owners) {
        return out_of_memory();
    }
    std::fill_n(counts->owners, results, int16_t{-1});

    Sgemm block = {{}, {}, {}, 1.0f, 0.0f, batch};
    size_t bytes[3] = {};
    Status status;
    const bool contiguous = variant->spec.contiguous;
    if (lay_out(batch, M, K, counts->rows, contiguous, &block.A, &bytes[0]) &&
        lay_out(batch, K, N, K, contiguous, &block.B, &bytes[1]) &&
        lay_out(batch, M, N, counts->rows, contiguous, &block.C, &bytes[2])) {
        block.B.cols = block.C.cols = counts->cols;
        pthread_mutex_lock(&one_at_a_time);
        status = count_launches(*counted, block, bytes, interrupt, counts);
        pthread_mutex_unlock(&one_at_a_time);
    } else {
        status = status_error(STATUS_OUT_OF_MEMORY,
                              "no address space for the matrices of batch, M, N, K = "
                              "%lld, %lld, %lld, %lld",
                              static_cast<long long>(batch), static_cast<long long>(M),
                              static_cast<long long>(N), static_cast<long long>(K));
    }
    const Matrix *const matrices[3] = {&block.A, &block.B, &block.C};
    for (int index = 0; index < 3; ++index) {
        if (bytes[index] && matrices[index]->data) {
            munmap(matrices[index]->data, bytes[index]);
        }
    }
    const auto place = [](const Access &access) {
        return std::make_tuple(std::string_view(access.file), access.line, access.launch,
                               access.store);
    };
    std::stable_sort(
        counts->accesses, counts->accesses + counts->count,
        [place](const Access &one, const Access &other) { return place(one) < place(other); });
    return status;
}
