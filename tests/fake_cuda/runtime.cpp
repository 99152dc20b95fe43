/* The part of the CUDA runtime that csrc/runtime/cuda/ uses, in host memory, to test the host code
 * without a GPU. It has several devices, asynchronous streams, and calls that fail on demand.
 *
 * Device addresses cannot be read or written directly: only queued copies and kernels translate
 * them to the host memory behind them. (With FAKE_CUDA_KEEPS_TO_ITSELF kernels cannot access
 * pinned memory.) A kernel is its CPU launcher, queued in the stream.
 *
 * In a build for AMD GPUs, csrc/base/cuda/hip_names.h turns this into HIP's runtime. */
#ifndef SGEMM_HIP
#include <cuda.h>
#include <cuda_runtime.h>
#endif

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "../../csrc/base/addend.h"
#include "../../csrc/base/scratch.h"
#include "../../csrc/base/variant.h"
#include "../../csrc/emulator/tensor_core_model.h"
#include "../../csrc/runtime/cuda/blocking_kernel.h"
#include "../../csrc/runtime/cuda/strided_copy.h"
#include "fake_cuda.h"

namespace {

using Lock = std::unique_lock<std::mutex>;
using Clock = std::chrono::steady_clock;

constexpr int most_devices = 16;
constexpr int multiprocessors = 8;

/* A device allocation and the host memory behind it. */
struct Block {
    size_t bytes;
    int device;
    char *content;
};

struct Mark {
    bool reached = false, is_newest = true; /* no later event was recorded in its stream */
    Clock::time_point when;
};

/* The progress of a stream; outlives the stream. */
struct Progress {
    size_t queued = 0, done = 0;
};

/* A captured graph: its tasks run in the order of capture. */
struct Graph {
    cudaStreamCaptureMode mode;
    std::thread::id owner; /* the thread that began the capture */
    bool broken = false;   /* by a call that CUDA forbids during a capture */
    std::vector<std::function<void()>> tasks = {};
    std::set<void *> taken = {}; /* memory that no task has freed yet */
};

struct Stream {
    int device;
    bool blocks; /* it synchronizes with the legacy stream */
    unsigned long long id;
    std::deque<std::function<void()>> queue;
    std::shared_ptr<Progress> progress = std::make_shared<Progress>();
    std::shared_ptr<Mark> newest = std::make_shared<Mark>();
    std::shared_ptr<Graph> captured = {}; /* during a capture */
};

struct Event {
    std::shared_ptr<Mark> mark;
    bool times;
    std::shared_ptr<Graph> captured = {}; /* recorded during this capture */
};

struct Account {
    size_t live = 0, capacity = 0, from_host = 0;
    bool has_context = false;
    useconds_t peer_delay_us = 0;   /* for copies to it from another device */
    cudaError_t lost = cudaSuccess; /* a sticky error */
};

struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int devices = 2;
    Account accounts[most_devices];
    std::map<const char *, Block> blocks;  /* by device address */
    std::map<const char *, size_t> pinned; /* by host address */
    std::set<const char *> allocated_pinned;
    std::map<int, Stream *> legacy;
    std::set<Stream *> streams, per_thread; /* created streams; threads' default streams */
    std::vector<std::pair<int, std::shared_ptr<Progress>>> destroyed; /* streams, by device */
    std::set<Event *> events;
    unsigned long long newest_id = 0;
    std::set<std::pair<const void *, int>> loaded; /* kernels, per device */
    long calls = 0, allocations = 0, waits_for_newest = 0, device_waits = 0, fail_at = 0;
    long clock_questions = 0, peer_questions = 0, prepared_again = 0;
    cudaError_t fail_with = cudaSuccess;
    const char *failed_call = "";
    bool notes_calls = false;
    std::string noted_calls;
    bool refuse_pinning = false, reaches_pinned = true, has_pools = true, peers = true;
    std::set<std::pair<int, int>> reached; /* device pairs with peer access */
    int delay_us = 0;
    int major = 9, minor = 0; /* of the compute capability */
    size_t pinned_bytes = 0, scratch_bytes = 0;
};

/* Never destroyed: streams outlive the end of main. */
State &state()
{
    static State *const made = [] {
        State *const s = new State;
        const char *const devices = getenv("FAKE_CUDA_DEVICES"), *const memory =
                                                                     getenv("FAKE_CUDA_MEMORY");
        const char *const delay = getenv("FAKE_CUDA_DELAY_US"), *const major =
                                                                    getenv("FAKE_CUDA_MAJOR");
        const char *const visible = getenv(GPU_VISIBLE);
        s->devices = visible && !*visible ? 0 : devices ? atoi(devices) : 2;
        s->delay_us = delay ? atoi(delay) : 0;
        s->major = major ? atoi(major) : 9;
        const char *const minor = getenv("FAKE_CUDA_MINOR");
        s->minor = minor ? atoi(minor) : 0;
        s->reaches_pinned = !getenv("FAKE_CUDA_KEEPS_TO_ITSELF");
        for (Account &account : s->accounts) {
            account.capacity = memory ? strtoull(memory, nullptr, 10) : size_t{1} << 30;
        }
        return s;
    }();
    return *made;
}

thread_local int current_device = 0;
thread_local bool context_is_current = false;
thread_local std::vector<std::pair<int, bool>> pushed; /* earlier values of the two above */
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

/* Ends the process with a message, for errors that no CUDA call could return. */
[[noreturn]] void give_up(const char *what, int error)
{
    fprintf(stderr, "fake CUDA runtime: %s: %s\n", what, strerror(error));
    abort();
}

bool is_sticky(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
#ifndef SGEMM_HIP
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
#endif
    case cudaErrorECCUncorrectable:
    case cudaErrorAssert:
        return true;
    default:
        return false;
    }
}

cudaError_t says(cudaError_t error)
{
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

/* Every call that can fail starts with this: counts the call, and fails it on demand. */
cudaError_t enter(const char *name, bool of_device = true)
{
    State &s = state();
    const Lock lock(s.mutex);
    Account &account = s.accounts[current_device];
    if (s.notes_calls) {
        s.noted_calls += name;
        s.noted_calls += '\n';
    }
    if (++s.calls == s.fail_at) {
        s.failed_call = name;
        if (is_sticky(s.fail_with)) {
            account.lost = s.fail_with;
        }
        return says(s.fail_with);
    }
    if (of_device && !context_is_current) {
        account.has_context = context_is_current = true;
    }
    return says(of_device ? account.lost : cudaSuccess);
}

#define RETURN_IF_FAILED(call)                                                                     \
    do {                                                                                           \
        const cudaError_t entered = call;                                                          \
        if (entered != cudaSuccess) {                                                              \
            return entered;                                                                        \
        }                                                                                          \
    } while (0)
#define ENTER() RETURN_IF_FAILED(enter(__func__))
/* For calls that still work on a lost device. */
#define ENTER_ANYWAY() RETURN_IF_FAILED(enter(__func__, false))

/* ------------------------------------------------------------------ memory */

/* The map's entry that contains all of [p, p + bytes), or end(). Keys are start addresses. */
template <class Map, class Size>
typename Map::iterator holding(Map &map, const void *p, size_t bytes, Size size_of)
{
    const char *const first = static_cast<const char *>(p);
    auto found = map.upper_bound(first);
    if (found == map.begin()) {
        return map.end();
    }
    --found;
    return first + bytes <= found->first + size_of(found->second) ? found : map.end();
}

size_t block_bytes(const Block &block)
{
    return block.bytes;
}

size_t itself(const size_t &bytes)
{
    return bytes;
}

/* The device that an address belongs to; -1: none. Requires the lock. */
int device_of(const void *p)
{
    State &s = state();
    const auto found = holding(s.blocks, p, 1, block_bytes);
    return found == s.blocks.end() ? -1 : found->second.device;
}

/* Host memory behind a device address; NULL if the bytes are not all in one allocation. Requires
 * the lock. */
char *device_content(const void *p, size_t bytes)
{
    State &s = state();
    const auto found = holding(s.blocks, p, bytes, block_bytes);
    return found == s.blocks.end()
               ? nullptr
               : found->second.content + (static_cast<const char *>(p) - found->first);
}

bool is_pinned(const void *p, size_t bytes)
{
    State &s = state();
    return holding(s.pinned, p, bytes, itself) != s.pinned.end();
}

/* True if some bytes are pinned, but not all by one registration: such copies fail. */
bool is_partly_pinned(const void *p, size_t bytes)
{
    const char *const first = static_cast<const char *>(p);
    for (const auto &entry : state().pinned) {
        if (entry.first < first + bytes && first < entry.first + entry.second) {
            return !is_pinned(p, bytes);
        }
    }
    return false;
}

/* Reserves addresses that cannot be read or written. */
char *reserve(size_t bytes)
{
    void *const address =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
        give_up("addresses for device memory", errno);
    }
    return static_cast<char *>(address);
}

/* The host memory behind them, filled with NaN. */
char *make_content(size_t bytes)
{
    char *const content = static_cast<char *>(malloc(bytes));
    if (!content) {
        give_up("host memory that stands for device memory", errno);
    }
    memset(content, 0xFF, bytes);
    return content;
}

cudaError_t allocate(void **pointer, size_t bytes, int device)
{
    State &s = state();
    const Lock lock(s.mutex);
    Account &account = s.accounts[device];
    *pointer = nullptr;
    if (bytes > account.capacity || account.live + bytes > account.capacity) {
        return says(cudaErrorMemoryAllocation);
    }
    if (bytes == 0) {
        return cudaSuccess;
    }
    char *const address = reserve(bytes);
    account.live += bytes;
    ++s.allocations;
    s.blocks[address] = {bytes, device, make_content(bytes)};
    *pointer = address;
    return cudaSuccess;
}

/* Requires the lock. */
void unmap(const char *address, const Block &block)
{
    state().accounts[block.device].live -= block.bytes;
    free(block.content);
    munmap(const_cast<char *>(address), block.bytes);
}

cudaError_t release(const void *pointer)
{
    State &s = state();
    const Lock lock(s.mutex);
    const auto found = s.blocks.find(static_cast<const char *>(pointer));
    if (found == s.blocks.end()) {
        return says(cudaErrorInvalidValue);
    }
    unmap(found->first, found->second);
    s.blocks.erase(found);
    return cudaSuccess;
}

/* ------------------------------------------------------------------ streams */

void serve(Stream *stream)
{
    State &s = state();
    current_device = stream->device;
    for (;;) {
        std::function<void()> task;
        {
            Lock lock(s.mutex);
            s.changed.wait(lock, [&] { return !stream->queue.empty(); });
            task = std::move(stream->queue.front());
            stream->queue.pop_front();
        }
        if (!task) {
            delete stream;
            return;
        }
        if (s.delay_us) {
            usleep(static_cast<useconds_t>(rand() % s.delay_us));
        }
        task();
        {
            const Lock lock(s.mutex);
            ++stream->progress->done;
        }
        s.changed.notify_all();
    }
}

/* Requires the lock. */
Stream *make_stream(int device, bool blocks)
{
    Stream *const stream = new Stream{device, blocks, ++state().newest_id, {}};
    try {
        std::thread(serve, stream).detach();
    } catch (const std::system_error &refused) {
        give_up("a thread that stands for a stream", refused.code().value());
    }
    return stream;
}

struct PerThread {
    std::map<int, Stream *> streams;
    ~PerThread()
    {
        for (const auto &entry : streams) {
            const Lock lock(state().mutex);
            state().per_thread.erase(entry.second);
            entry.second->queue.push_back(nullptr);
        }
        state().changed.notify_all();
    }
};

thread_local PerThread per_thread;

Stream *stream_of(cudaStream_t handle)
{
    if (handle == cudaStreamPerThread) {
        const Lock lock(state().mutex);
        Stream *&stream = per_thread.streams[current_device];
        stream = stream ? stream : make_stream(current_device, true);
        state().per_thread.insert(stream);
        return stream;
    }
#ifdef SGEMM_HIP
    const bool is_legacy = !handle; /* HIP has no other handle for it */
#else
    const bool is_legacy = !handle || handle == cudaStreamLegacy;
#endif
    if (is_legacy) {
        const Lock lock(state().mutex);
        Stream *&stream = state().legacy[current_device];
        stream = stream ? stream : make_stream(current_device, true);
        return stream;
    }
    return reinterpret_cast<Stream *>(handle);
}

/* The stream for a handle from a caller. */
Stream *stream_named(void *handle)
{
#ifdef SGEMM_HIP
    handle = handle == reinterpret_cast<void *>(1) ? nullptr : handle;
#endif
    return stream_of(static_cast<cudaStream_t>(handle));
}

typedef std::vector<std::pair<std::shared_ptr<Progress>, size_t>> Progresses;

/* Streams that a stream's next task waits for: the legacy stream waits for all blocking streams,
 * and they wait for it. Requires the lock. */
Progresses before(const Stream *stream)
{
    State &s = state();
    Progresses all;
    const auto legacy = s.legacy.find(stream->device);
    if (!stream->blocks || legacy == s.legacy.end()) {
        return all;
    }
    if (stream != legacy->second) {
        all.emplace_back(legacy->second->progress, legacy->second->progress->queued);
        return all;
    }
    for (const auto *set : {&s.streams, &s.per_thread}) {
        for (Stream *const other : *set) {
            if (other->blocks && other->device == stream->device) {
                all.emplace_back(other->progress, other->progress->queued);
            }
        }
    }
    return all;
}

/* True if all streams have come this far. Requires the lock. */
bool reached(const Progresses &all)
{
    for (const auto &entry : all) {
        if (entry.first->done < entry.second) {
            return false;
        }
    }
    return true;
}

void submit(Stream *stream, std::function<void()> task)
{
    State &s = state();
    {
        const Lock lock(s.mutex);
        if (stream->captured) {
            stream->captured->tasks.push_back(std::move(task));
            return;
        }
        const Progresses others = before(stream);
        if (!reached(others)) {
            task = [others, task] {
                {
                    Lock inner(state().mutex);
                    state().changed.wait(inner, [&] { return reached(others); });
                }
                task();
            };
        }
        stream->queue.push_back(std::move(task));
        ++stream->progress->queued;
    }
    s.changed.notify_all();
}

void wait_for(Stream *stream)
{
    State &s = state();
    Lock lock(s.mutex);
    const size_t until = stream->progress->queued;
    s.changed.wait(lock, [&] { return stream->progress->done >= until; });
}

bool is_captured(Stream *stream)
{
    const Lock lock(state().mutex);
    return stream->captured != nullptr;
}

/* Invalidates the captures that `conflicts` selects; fails if there are any. Requires the lock. */
template <class Condition> cudaError_t break_captures(Condition conflicts)
{
    bool found = false;
    for (Stream *const stream : state().streams) {
        if (stream->captured && conflicts(*stream)) {
            stream->captured->broken = found = true;
        }
    }
    return found ? says(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

/* For calls that CUDA calls potentially unsafe. A thread in relaxed mode may always make them.
 * Otherwise a thread may not during its own capture, unless that is relaxed. In global mode it may
 * not while any thread captures in global mode. */
cudaError_t unsafe()
{
    const Lock lock(state().mutex);
    return break_captures([](const Stream &stream) {
        const Graph &graph = *stream.captured;
        const bool own = graph.owner == std::this_thread::get_id();
        return (own && capture_mode != cudaStreamCaptureModeRelaxed &&
                graph.mode != cudaStreamCaptureModeRelaxed) ||
               (capture_mode == cudaStreamCaptureModeGlobal &&
                graph.mode == cudaStreamCaptureModeGlobal);
    });
}

/* The first use of a kernel on a device loads its code. */
cudaError_t load(const void *kernel)
{
    {
        const Lock lock(state().mutex);
        if (!state().loaded.insert({kernel, current_device}).second) {
            return cudaSuccess;
        }
    }
    const cudaError_t error = unsafe();
    if (error != cudaSuccess) {
        const Lock lock(state().mutex);
        state().loaded.erase({kernel, current_device});
    }
    return error;
}

cudaError_t lost(int device)
{
    const Lock lock(state().mutex);
    return says(state().accounts[device].lost);
}

void lose(int device, cudaError_t error)
{
    const Lock lock(state().mutex);
    Account &account = state().accounts[device];
    account.lost = account.lost == cudaSuccess ? error : account.lost;
}

/* ------------------------------------------------------------------ copies */

struct Rectangle {
    char *to;
    size_t to_pitch;
    const char *from;
    size_t from_pitch, width, height;

    size_t to_bytes() const
    {
        return height ? to_pitch * (height - 1) + width : 0;
    }
    size_t from_bytes() const
    {
        return height ? from_pitch * (height - 1) + width : 0;
    }
};

void move(const Rectangle &r, char *to, const char *from)
{
    for (size_t line = 0; line < r.height; ++line) {
        memcpy(to + line * r.to_pitch, from + line * r.from_pitch, r.width);
    }
}

/* Delays a copy between devices: first its queueing, then its start. */
void delay_between_devices(const Rectangle &r, Stream *stream)
{
    useconds_t late_us = 0;
    {
        const Lock lock(state().mutex);
        const int to = device_of(r.to), from = device_of(r.from);
        late_us = to >= 0 && from >= 0 && to != from ? state().accounts[to].peer_delay_us : 0;
    }
    if (late_us) {
        usleep(late_us);
        submit(stream, [late_us] { usleep(3 * late_us); });
    }
}

cudaError_t queue_copy(const Rectangle &r, cudaMemcpyKind kind, Stream *stream)
{
    if (r.width > r.to_pitch || r.width > r.from_pitch) {
        return says(cudaErrorInvalidPitchValue);
    }
    if (r.width == 0 || r.height == 0) {
        return cudaSuccess;
    }
    char *to = r.to;
    const char *from = r.from;
    bool to_pageable = false, from_pageable = false;
    delay_between_devices(r, stream);
    {
        const Lock lock(state().mutex);
        char *const to_content = device_content(r.to, r.to_bytes());
        char *const from_content = device_content(r.from, r.from_bytes());
        const bool to_device = kind == cudaMemcpyDefault ? to_content != nullptr
                                                         : kind == cudaMemcpyHostToDevice ||
                                                               kind == cudaMemcpyDeviceToDevice;
        const bool from_device = kind == cudaMemcpyDefault ? from_content != nullptr
                                                           : kind == cudaMemcpyDeviceToHost ||
                                                                 kind == cudaMemcpyDeviceToDevice;
        if ((to_device && !to_content) || (from_device && !from_content) ||
            (!to_device && is_partly_pinned(r.to, r.to_bytes())) ||
            (!from_device && is_partly_pinned(r.from, r.from_bytes()))) {
            return says(cudaErrorInvalidValue);
        }
        to = to_device ? to_content : to;
        from = from_device ? from_content : from;
        to_pageable = !to_device && !is_pinned(r.to, r.to_bytes());
        from_pageable = !from_device && !is_pinned(r.from, r.from_bytes());
        if (to_device && !from_device) {
            state().accounts[device_of(r.to)].from_host += r.width * r.height;
        }
    }
    if (from_pageable) {
        /* Pageable memory is read before the call returns. */
        const auto taken = std::make_shared<std::vector<char>>(r.from_bytes());
        Rectangle taking = r;
        taking.to_pitch = r.from_pitch;
        move(taking, taken->data(), from);
        submit(stream, [r, to, taken] { move(r, to, taken->data()); });
    } else {
        submit(stream, [r, to, from] { move(r, to, from); });
    }
    if (to_pageable) {
        wait_for(stream);
    }
    return cudaSuccess;
}

cudaError_t queue_line(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream)
{
    return queue_copy(
        {static_cast<char *>(to), bytes, static_cast<const char *>(from), bytes, bytes, 1}, kind,
        stream_of(stream));
}

/* ------------------------------------------------------------------ kernels */

/* The bytes before and after the first element that the steps reach. */
struct Reach {
    int64_t before = 0, after = 0;

    void extend(int64_t count, int64_t bytes)
    {
        (bytes < 0 ? before : after) += (count - 1) * bytes;
    }
};

/* The host memory behind an address, if the GPU could access all that is within reach; otherwise
 * NULL. Requires the lock. */
char *reached(char *data, const Reach &reach, ElementType type)
{
    char *const first = data + reach.before;
    const size_t bytes = static_cast<size_t>(reach.after - reach.before + element_bytes(type));
    if (char *const content = device_content(first, bytes)) {
        return content - reach.before;
    }
    return state().reaches_pinned && is_pinned(first, bytes) ? data : nullptr;
}

/* Translates the matrices of a batch to the host memory behind them; false if the GPU could not
 * access it. */
bool reachable(Matrix *matrix, int64_t count, ElementType type = ELEMENT_FLOAT32)
{
    if (matrix->rows == 0 || matrix->cols == 0) {
        return true;
    }
    const int64_t element = element_bytes(type);
    Reach reach;
    reach.extend(matrix->rows, matrix->row_stride * element);
    reach.extend(matrix->cols, matrix->col_stride * element);
    reach.extend(count, matrix->batch_stride * element);
    char *const there = reached(reinterpret_cast<char *>(matrix->data), reach, type);
    matrix->data = there ? reinterpret_cast<float *>(there) : matrix->data;
    return there != nullptr;
}

/* The same for an array with any strides. */
bool reachable(Strided *array)
{
    Reach reach;
    reach.extend(array->rows, array->row_bytes);
    reach.extend(array->cols, array->col_bytes);
    char *const there = reached(array->data, reach, array->type);
    array->data = there ? there : array->data;
    return there != nullptr;
}

/* Sets *place to device memory that records what the CPU kernel prepared from an operand, or to
 * NULL. Nothing frees the prepared data itself, but callers free the device memory. */
Status take_prepared(const Launch *where, int operand, void **place)
{
    *place = nullptr;
    Prepared *const prepared = where->prepared[operand];
    if (!prepared) {
        return status_ok();
    }
    const bool is_new = !prepared->memory;
    if (is_new) {
        const Status taken = scratch_alloc(sizeof(Prepared), where, &prepared->memory);
        if (taken.code != STATUS_OK) {
            prepared->memory = nullptr;
            return taken;
        }
    }
    prepared->ready = true;
    *place = prepared->memory;
    if (!is_new) {
        const Lock lock(state().mutex);
        ++state().prepared_again;
    } else {
        submit(stream_named(where->stream), [memory = *place] {
            const Lock lock(state().mutex);
            if (char *const content = device_content(memory, sizeof(Prepared))) {
                memset(content, 0, sizeof(Prepared));
            }
        });
    }
    return status_ok();
}

/* A C that a kernel reads where it is, and the result: Addend's context. */
struct InPlace {
    Matrix addend, result;
};

/* Before a kernel that reads only the result, a GPU's launcher queues a copy of C. Here the CPU's
 * launcher copies, in the stream. */
Status copy_in_stream(void *context, int64_t first, int64_t count)
{
    const auto *const matrices = static_cast<const InPlace *>(context);
    {
        const Lock lock(state().mutex);
        state().noted_calls += state().notes_calls ? "a copy of C\n" : "";
    }
    for (int64_t n = first; n < first + count; ++n) {
        const Matrix result = matrix_in_batch(&matrices->result, n),
                     addend = matrix_in_batch(&matrices->addend, n);
        const Strided to = strided_of_matrix(&result), from = strided_of_matrix(&addend);
        strided_copy(&to, &from);
    }
    return status_ok();
}

Status launch(Launcher *on_cpu, const Sgemm *problem, const Launch *where)
{
    cudaError_t error = enter("a launch");
    error = error == cudaSuccess ? load(reinterpret_cast<const void *>(on_cpu)) : error;
    last_error = cudaSuccess;
    if (error != cudaSuccess) {
        return launch_failed(where, error);
    }
    constexpr size_t counter_count = 100;
    void *scratch = nullptr;
    unsigned *counters = nullptr;
    if (const size_t bytes = state().scratch_bytes) {
        Status taken = scratch_alloc(bytes, where, &scratch);
        if (taken.code != STATUS_OK) {
            return taken;
        }
        taken = counters_alloc(counter_count, where, &counters);
        if (taken.code != STATUS_OK) {
            scratch_free(scratch, where);
            return taken;
        }
    }
    void *places[2];
    for (int operand = 0; operand < 2; ++operand) {
        const Status taken = take_prepared(where, operand, &places[operand]);
        if (taken.code != STATUS_OK) {
            return taken;
        }
    }
    const int device = where->device;
    const Sgemm p = *problem;
    const Matrix added = where->addend ? where->addend->matrix : Matrix{};
    const ElementType types[] = {where->elements[0], where->elements[1]};
    const size_t scratch_bytes = state().scratch_bytes;
    submit(stream_named(where->stream), [=] {
        Sgemm real = p;
        InPlace in_place = {added, {}};
        Prepared prepared[2] = {};
        char *contents[2];
        bool all;
        {
            const Lock lock(state().mutex);
            char *const content = scratch ? device_content(scratch, scratch_bytes) : nullptr;
            if (content) {
                memset(content, 0xFF, scratch_bytes);
            }
            const char *const zeros =
                counters ? device_content(counters, counter_count * sizeof *counters) : nullptr;
            all = (p.alpha == 0.0f || (reachable(&real.A, real.count, types[0]) &&
                                       reachable(&real.B, real.count, types[1]))) &&
                  reachable(&real.C, real.count) &&
                  (!added.data || reachable(&in_place.addend, real.count)) &&
                  (content || !scratch) && (zeros || !counters) &&
                  std::all_of(zeros, zeros + (zeros ? counter_count * sizeof *counters : 0),
                              [](char each) { return each == 0; });
            for (int operand = 0; operand < 2; ++operand) {
                contents[operand] = device_content(places[operand], sizeof(Prepared));
                all = all && (contents[operand] || !places[operand]);
                if (contents[operand]) {
                    memcpy(&prepared[operand], contents[operand], sizeof(Prepared));
                }
            }
        }
        /* Starting threads would take longer than a small product. */
        const bool is_small = p.C.rows * p.C.cols * p.A.cols * p.count < 1 << 16;
        in_place.result = real.C;
        const Addend addend = {in_place.addend, 0, copy_in_stream, &in_place};
        const Launch here = {
            0,
            nullptr,
            nullptr,
            {places[0] ? &prepared[0] : nullptr, places[1] ? &prepared[1] : nullptr},
            is_small,
            added.data ? &addend : nullptr,
            {types[0], types[1]}};
        if (!all) {
            lose(device, cudaErrorIllegalAddress);
        } else if (on_cpu(&real, &here).code != STATUS_OK) {
            lose(device, cudaErrorLaunchFailure);
        }
        for (int operand = 0; all && operand < 2; ++operand) {
            if (places[operand]) {
                memcpy(contents[operand], &prepared[operand], sizeof(Prepared));
            }
        }
    });
    if (scratch) {
        scratch_free(counters, where);
        scratch_free(scratch, where);
    }
    return status_ok();
}

#ifndef SGEMM_HIP
/* One launch of many products. */
Status launch_many(ManyLauncher *on_cpu, const Sgemm *problems, int64_t count, const Launch *where)
{
    cudaError_t error = enter("a launch");
    error = error == cudaSuccess ? load(reinterpret_cast<const void *>(on_cpu)) : error;
    last_error = cudaSuccess;
    if (error != cudaSuccess) {
        return launch_failed(where, error);
    }
    const int device = where->device;
    const std::vector<Sgemm> all(problems, problems + count);
    submit(stream_named(where->stream), [=] {
        std::vector<Sgemm> real = all;
        bool all_reachable = true;
        {
            const Lock lock(state().mutex);
            for (Sgemm &p : real) {
                all_reachable = all_reachable &&
                                (p.alpha == 0.0f || (reachable(&p.A, 1) && reachable(&p.B, 1))) &&
                                reachable(&p.C, 1);
            }
        }
        const Launch here = {};
        if (!all_reachable) {
            lose(device, cudaErrorIllegalAddress);
        } else if (on_cpu(real.data(), count, &here).code != STATUS_OK) {
            lose(device, cudaErrorLaunchFailure);
        }
    });
    return status_ok();
}
#endif

} // namespace

extern "C" {

/* ------------------------------------------------------------------ controls for tests */

void fake_cuda_fail(long call, int error)
{
    State &s = state();
    const Lock lock(s.mutex);
    s.fail_at = call > 0 ? s.calls + call : 0;
    s.fail_with = static_cast<cudaError_t>(error);
    s.failed_call = "";
}

const char *fake_cuda_failed_call(void)
{
    return state().failed_call;
}

void fake_cuda_revive(void)
{
    State &s = state();
    const Lock lock(s.mutex);
    for (Account &account : s.accounts) {
        account.lost = cudaSuccess;
    }
}

void fake_cuda_set_memory(int device, size_t bytes)
{
    const Lock lock(state().mutex);
    state().accounts[device].capacity = bytes;
}

void fake_cuda_refuse_pinning(int refuse)
{
    state().refuse_pinning = refuse != 0;
}

void fake_cuda_set_pools(int has_pools)
{
    state().has_pools = has_pools != 0;
}

void fake_cuda_set_peers(int reach)
{
    state().peers = reach != 0;
}

void fake_cuda_set_peer_delay(int device, int microseconds)
{
    const Lock lock(state().mutex);
    state().accounts[device].peer_delay_us = static_cast<useconds_t>(microseconds);
}

size_t fake_cuda_from_host(int device)
{
    const Lock lock(state().mutex);
    return state().accounts[device].from_host;
}

void fake_cuda_set_scratch(size_t bytes)
{
    state().scratch_bytes = bytes;
}

void fake_cuda_note_calls(void)
{
    const Lock lock(state().mutex);
    state().notes_calls = true;
    state().noted_calls.clear();
}

const char *fake_cuda_noted_calls(void)
{
    const Lock lock(state().mutex);
    state().notes_calls = false;
    return state().noted_calls.c_str();
}

void fake_cuda_forget_kernels(void)
{
    const Lock lock(state().mutex);
    state().loaded.clear();
}

void fake_cuda_set_tensor_cores(int major, int minor, int products, int bits)
{
    const TensorCoreModel model = {major, minor, products, bits};
    cpu_tensor_cores_set(&model);
}

void fake_cuda_set_delay(int microseconds)
{
    state().delay_us = microseconds;
}

long fake_cuda_peer_questions(void)
{
    const Lock lock(state().mutex);
    return state().peer_questions;
}

long fake_cuda_prepared_again(void)
{
    const Lock lock(state().mutex);
    return state().prepared_again;
}

long fake_cuda_clock_questions(void)
{
    const Lock lock(state().mutex);
    return state().clock_questions;
}

size_t fake_cuda_live(int device)
{
    const Lock lock(state().mutex);
    return state().accounts[device].live;
}

int fake_cuda_has_context(int device)
{
    const Lock lock(state().mutex);
    return state().accounts[device].has_context;
}

size_t fake_cuda_pinned(void)
{
    const Lock lock(state().mutex);
    return state().pinned_bytes;
}

long fake_cuda_calls(void)
{
    const Lock lock(state().mutex);
    return state().calls;
}

long fake_cuda_allocations(void)
{
    const Lock lock(state().mutex);
    return state().allocations;
}

long fake_cuda_waits_for_newest(void)
{
    const Lock lock(state().mutex);
    return state().waits_for_newest;
}

long fake_cuda_device_waits(void)
{
    const Lock lock(state().mutex);
    return state().device_waits;
}

void fake_cuda_replay(void *graph, void *stream)
{
    const auto captured = *static_cast<std::shared_ptr<Graph> *>(graph);
    submit(stream_named(stream), [captured] {
        for (const auto &task : captured->tasks) {
            task();
        }
    });
}

long fake_cuda_handles(void)
{
    const Lock lock(state().mutex);
    return static_cast<long>(state().streams.size() + state().events.size());
}

void *fake_cuda_malloc(int device, size_t bytes)
{
    void *pointer;
    return allocate(&pointer, bytes, device) == cudaSuccess ? pointer : nullptr;
}

void fake_cuda_free(void *memory)
{
    release(memory);
}

void fake_cuda_free_in_order(void *memory, int device, void *stream)
{
    std::swap(device, current_device);
    submit(stream_named(stream), [memory] { release(memory); });
    std::swap(device, current_device);
}

void *fake_cuda_content(const void *address, size_t bytes)
{
    const Lock lock(state().mutex);
    return device_content(address, bytes);
}

int fake_cuda_is_pinned(const void *address, size_t bytes)
{
    const Lock lock(state().mutex);
    return is_pinned(address, bytes);
}

/* ------------------------------------------------------------------ errors */

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    thread_local std::string text;
    text = "cudaError " + std::to_string(static_cast<int>(error));
    return text.c_str();
}

const char *cudaGetErrorString(cudaError_t error)
{
    thread_local std::string text;
    text = "error number " + std::to_string(static_cast<int>(error));
    return text.c_str();
}

/* ------------------------------------------------------------------ devices */

cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER_ANYWAY();
    *count = state().devices;
    return says(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    ENTER_ANYWAY();
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    ENTER_ANYWAY();
    if (device < 0 || device >= state().devices) {
        return says(cudaErrorInvalidDevice);
    }
    const Lock lock(state().mutex);
    current_device = device;
#ifdef SGEMM_HIP
    context_is_current = state().accounts[device].has_context; /* its first use creates a context */
#else
    state().accounts[device].has_context = context_is_current = true;
#endif
    return cudaSuccess;
}

#ifndef SGEMM_HIP
CUresult cuDeviceGet(CUdevice *device, int index)
{
    *device = index;
    return static_cast<CUresult>(enter(__func__, false));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    const cudaError_t error = enter(__func__, false);
    const Lock lock(state().mutex);
    state().accounts[device].has_context = true;
    *context = reinterpret_cast<CUcontext>(&state().accounts[device]);
    return static_cast<CUresult>(error);
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    const cudaError_t error = enter(__func__, false);
    if (error == cudaSuccess) {
        pushed.emplace_back(current_device, context_is_current);
        current_device = static_cast<int>(reinterpret_cast<Account *>(context) - state().accounts);
        context_is_current = true;
    }
    return static_cast<CUresult>(error);
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    if (pushed.empty()) {
        give_up("what nobody has pushed is the caller's", EINVAL);
    }
    *context = reinterpret_cast<CUcontext>(&state().accounts[current_device]);
    std::tie(current_device, context_is_current) = pushed.back();
    pushed.pop_back();
    return static_cast<CUresult>(enter(__func__, false));
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    cudaStreamCaptureMode wanted = static_cast<cudaStreamCaptureMode>(*mode);
    std::swap(wanted, capture_mode);
    *mode = static_cast<CUstreamCaptureMode>(wanted);
    return CUDA_SUCCESS;
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult *found)
#else
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long,
                                    cudaDriverEntryPointQueryResult *found)
#endif
{
    ENTER_ANYWAY();
    static const std::map<std::string, void *> functions = {
        {"cuDeviceGet", reinterpret_cast<void *>(cuDeviceGet)},
        {"cuDevicePrimaryCtxRetain", reinterpret_cast<void *>(cuDevicePrimaryCtxRetain)},
        {"cuCtxPushCurrent", reinterpret_cast<void *>(cuCtxPushCurrent)},
        {"cuCtxPopCurrent", reinterpret_cast<void *>(cuCtxPopCurrent)},
        {"cuThreadExchangeStreamCaptureMode",
         reinterpret_cast<void *>(cuThreadExchangeStreamCaptureMode)}};
    *function = functions.at(name);
    *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
#endif

#ifdef SGEMM_HIP
static constexpr int newest_version = HIP_VERSION;
#else
static constexpr int newest_version = CUDART_VERSION;
#endif

cudaError_t cudaDriverGetVersion(int *version)
{
    ENTER_ANYWAY();
    *version = newest_version;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    ENTER_ANYWAY();
    *version = newest_version;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    ENTER_ANYWAY();
    if (device < 0 || device >= state().devices) {
        return says(cudaErrorInvalidDevice);
    }
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = state().major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = state().minor;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = multiprocessors;
        break;
    case cudaDevAttrClockRate:
        ++state().clock_questions;
        *value = 10000; /* slow, so that even small products are split */
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 1024;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = 1 << 17;
        break;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
        *value = 1 << 16;
        break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
        *value = 1;
        break;
    case cudaDevAttrMemoryPoolsSupported:
        *value = state().has_pools;
        break;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
        *value = state().reaches_pinned;
        break;
    default:
        *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    ENTER_ANYWAY();
    if (device < 0 || device >= state().devices) {
        return says(cudaErrorInvalidDevice);
    }
    *properties = {};
    strcpy(properties->name, "a fake GPU");
    properties->major = 9;
    properties->multiProcessorCount = multiprocessors;
    properties->totalGlobalMem = state().accounts[device].capacity;
    properties->l2CacheSize = 1 << 20;
#ifdef SGEMM_HIP
    const char *const architecture = getenv("FAKE_HIP_ARCHITECTURE");
    snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "%s:sramecc+:xnack-",
             architecture ? architecture : "gfx90a");
#endif
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    ENTER_ANYWAY();
    snprintf(text, static_cast<size_t>(bytes), "0000:%02X:00.0", device + 1);
    return cudaSuccess;
}

/* Waits for all streams of a device. */
static void wait_for_device(int device)
{
    State &s = state();
    Lock lock(s.mutex);
    ++s.device_waits;
    Progresses all;
    for (const auto *set : {&s.streams, &s.per_thread}) {
        for (Stream *const stream : *set) {
            if (stream->device == device) {
                all.emplace_back(stream->progress, stream->progress->queued);
            }
        }
    }
    for (const auto &entry : s.destroyed) {
        if (entry.first == device) {
            all.emplace_back(entry.second, entry.second->queued);
        }
    }
    if (s.legacy.count(device)) {
        const auto &progress = s.legacy[device]->progress;
        all.emplace_back(progress, progress->queued);
    }
    s.changed.wait(lock, [&] { return reached(all); });
}

/* Conflicts with a capture on the same device in any mode. */
cudaError_t cudaDeviceSynchronize(void)
{
    ENTER();
    {
        const Lock lock(state().mutex);
        RETURN_IF_FAILED(
            break_captures([](const Stream &stream) { return stream.device == current_device; }));
    }
    wait_for_device(current_device);
    return lost(current_device);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int, int)
{
    ENTER();
    *can = state().peers;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int away, unsigned)
{
    ENTER();
    State &s = state();
    const Lock lock(s.mutex);
    ++s.peer_questions;
    const bool is_new = s.reached.insert({current_device, away}).second;
    return says(is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}

/* ------------------------------------------------------------------ memory */

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    ENTER();
    RETURN_IF_FAILED(unsafe());
    return allocate(pointer, bytes, current_device);
}

/* First waits for all work of the device. Like all functions that free memory, it frees even if
 * it returns an error of earlier work. */
cudaError_t cudaFree(void *pointer)
{
    const cudaError_t refused = unsafe();
    const cudaError_t error = refused == cudaSuccess ? enter(__func__) : refused;
    int device;
    {
        const Lock lock(state().mutex);
        device = device_of(pointer);
    }
    if (device >= 0) {
        wait_for_device(device);
    }
    const cudaError_t released = pointer ? release(pointer) : cudaSuccess;
    return error == cudaSuccess ? released : error;
}

/* Only in a capture. The memory exists from this node to the node of cudaFreeAsync; its address
 * belongs to the graph for good. */
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream)
{
    ENTER();
    Stream *const into = stream_of(stream);
    if (!is_captured(into)) {
        return says(cudaErrorNotSupported);
    }
    char *const address = reserve(bytes);
    *pointer = address;
    {
        const Lock lock(state().mutex);
        into->captured->taken.insert(address);
    }
    submit(into, [address, bytes, device = into->device] {
        char *const content = make_content(bytes);
        const Lock lock(state().mutex);
        state().blocks[address] = {bytes, device, content};
    });
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    ENTER();
    Stream *const into = stream_of(stream);
    {
        const Lock lock(state().mutex);
        if (!into->captured || into->captured->taken.erase(pointer) == 0) {
            return says(cudaErrorInvalidValue);
        }
    }
    submit(into, [address = static_cast<char *>(pointer)] {
        const Lock lock(state().mutex);
        free(state().blocks[address].content);
        state().blocks.erase(address);
    });
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER();
    const Lock lock(state().mutex);
    const Account &account = state().accounts[current_device];
    *total_bytes = account.capacity;
    *free_bytes = account.capacity > account.live ? account.capacity - account.live : 0;
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned)
{
    ENTER();
    RETURN_IF_FAILED(unsafe());
    State &s = state();
    const Lock lock(s.mutex);
    if (s.refuse_pinning) {
        return says(cudaErrorMemoryAllocation);
    }
    if (is_pinned(pointer, 1) || is_partly_pinned(pointer, bytes)) {
        return says(cudaErrorHostMemoryAlreadyRegistered);
    }
    s.pinned[static_cast<const char *>(pointer)] = bytes;
    s.pinned_bytes += bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    RETURN_IF_FAILED(unsafe());
    const cudaError_t error = enter(__func__);
    State &s = state();
    const Lock lock(s.mutex);
    const auto found = s.pinned.find(static_cast<const char *>(pointer));
    if (found == s.pinned.end()) {
        return says(cudaErrorHostMemoryNotRegistered);
    }
    s.pinned_bytes -= found->second;
    s.pinned.erase(found);
    return error;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned)
{
    ENTER();
    RETURN_IF_FAILED(unsafe());
    State &s = state();
    const Lock lock(s.mutex);
    *pointer = s.refuse_pinning ? nullptr : calloc(1, bytes ? bytes : 1);
    if (!*pointer) {
        return says(cudaErrorMemoryAllocation);
    }
    s.pinned[static_cast<const char *>(*pointer)] = bytes;
    s.allocated_pinned.insert(static_cast<const char *>(*pointer));
    s.pinned_bytes += bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *pointer)
{
    RETURN_IF_FAILED(unsafe());
    const cudaError_t error = enter(__func__);
    if (!pointer) {
        return error;
    }
    State &s = state();
    const Lock lock(s.mutex);
    if (s.allocated_pinned.erase(static_cast<const char *>(pointer)) == 0) {
        return says(cudaErrorInvalidValue);
    }
    s.pinned_bytes -= s.pinned[static_cast<const char *>(pointer)];
    s.pinned.erase(static_cast<const char *>(pointer));
    free(pointer);
    return error;
}

cudaError_t cudaHostGetDevicePointer(void **on_device, void *on_host, unsigned)
{
    ENTER();
    *on_device = on_host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    ENTER();
    State &s = state();
    const Lock lock(s.mutex);
    *attributes = {};
    const auto found = holding(s.blocks, pointer, 1, block_bytes);
#ifdef SGEMM_HIP
    auto &type = attributes->HIP_MEMORY_TYPE;
#else
    auto &type = attributes->type;
#endif
    if (found != s.blocks.end()) {
        type = cudaMemoryTypeDevice;
        attributes->device = found->second.device;
        attributes->devicePointer = const_cast<void *>(pointer);
    } else if (is_pinned(pointer, 1)) {
        type = cudaMemoryTypeHost;
        attributes->devicePointer = attributes->hostPointer = const_cast<void *>(pointer);
    } else {
#ifdef SGEMM_HIP
        return says(cudaErrorInvalidValue);
#else
        type = cudaMemoryTypeUnregistered;
        attributes->device = -1;
        attributes->hostPointer = const_cast<void *>(pointer);
#endif
    }
    return cudaSuccess;
}

/* ------------------------------------------------------------------ copies */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ENTER();
    return queue_line(to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    ENTER();
    const cudaError_t error = queue_line(to, from, bytes, kind, nullptr);
    wait_for(stream_of(nullptr));
    return error == cudaSuccess ? lost(current_device) : error;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER();
    return queue_copy({static_cast<char *>(to), to_pitch, static_cast<const char *>(from),
                       from_pitch, width, height},
                      kind, stream_of(stream));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes,
                                cudaStream_t stream)
{
    ENTER();
    return queue_line(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    ENTER();
    Stream *const into = stream_of(stream);
    if (!is_captured(into)) { /* a graph's memory exists only at replay */
        const Lock lock(state().mutex);
        if (!device_content(to, bytes)) {
            return says(cudaErrorInvalidValue);
        }
    }
    submit(into, [to, value, bytes, device = into->device] {
        char *content;
        {
            const Lock lock(state().mutex);
            content = device_content(to, bytes);
        }
        if (content) {
            memset(content, value, bytes);
        } else {
            lose(device, cudaErrorIllegalAddress);
        }
    });
    return cudaSuccess;
}

/* ------------------------------------------------------------------ streams and events */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    ENTER();
    RETURN_IF_FAILED(unsafe());
    const Lock lock(state().mutex);
    Stream *const made = make_stream(current_device, !(flags & cudaStreamNonBlocking));
    state().streams.insert(made);
    *stream = reinterpret_cast<cudaStream_t>(made);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const cudaError_t error = enter(__func__);
    Stream *const gone = reinterpret_cast<Stream *>(stream);
    {
        const Lock lock(state().mutex);
        state().streams.erase(gone);
        state().destroyed.emplace_back(gone->device, gone->progress);
        gone->queue.push_back(nullptr);
    }
    state().changed.notify_all();
    return error;
}

#ifndef SGEMM_HIP
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    ENTER();
    *id = stream_of(stream)->id;
    return cudaSuccess;
}
#endif

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    ENTER_ANYWAY();
    *status = is_captured(stream_of(stream)) ? cudaStreamCaptureStatusActive
                                             : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

#ifdef SGEMM_HIP
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode)
{
    std::swap(*mode, capture_mode);
    return cudaSuccess;
}
#endif

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    ENTER();
    const Lock lock(state().mutex);
    reinterpret_cast<Stream *>(stream)->captured =
        std::make_shared<Graph>(Graph{mode, std::this_thread::get_id()});
    return cudaSuccess;
}

/* Also ends the capture of the streams that joined it. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    ENTER();
    State &s = state();
    const Lock lock(s.mutex);
    const auto captured = reinterpret_cast<Stream *>(stream)->captured;
    bool joined = true;
    for (Stream *const each : s.streams) {
        if (each->captured == captured) {
            joined = joined && reinterpret_cast<cudaStream_t>(each) == stream;
            each->captured = nullptr;
        }
    }
    const bool keeps = !captured->taken.empty(); /* CUDA allows this; the package must not */
    const bool broken = captured->broken;
    *graph = broken || !joined || keeps
                 ? nullptr
                 : reinterpret_cast<cudaGraph_t>(new std::shared_ptr<Graph>(captured));
    return says(broken   ? cudaErrorStreamCaptureInvalidated
                : joined ? cudaSuccess
                         : cudaErrorStreamCaptureUnjoined);
}

/* A captured stream cannot be queried or waited for in any mode; for others the call is
 * potentially unsafe. */
static cudaError_t stream_not_captured(const Stream *stream)
{
    {
        const Lock lock(state().mutex);
        RETURN_IF_FAILED(
            break_captures([stream](const Stream &other) { return &other == stream; }));
    }
    return unsafe();
}

/* The same for an event. */
static cudaError_t event_not_captured(const Event *event)
{
    {
        const Lock lock(state().mutex);
        if (event->captured) {
            event->captured->broken = true;
            return says(cudaErrorCapturedEvent);
        }
    }
    return unsafe();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const cudaError_t entered = enter(__func__);
    Stream *const waited = stream_of(stream);
    RETURN_IF_FAILED(stream_not_captured(waited));
    wait_for(waited);
    return entered != cudaSuccess ? entered : lost(waited->device);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER();
    Stream *const asked = stream_of(stream);
    RETURN_IF_FAILED(stream_not_captured(asked));
    {
        const Lock lock(state().mutex);
        if (asked->progress->done < asked->progress->queued) {
            return cudaErrorNotReady;
        }
    }
    return lost(asked->device);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER();
    Event *const made = new Event{{}, !(flags & cudaEventDisableTiming)};
    const Lock lock(state().mutex);
    state().events.insert(made);
    *event = reinterpret_cast<cudaEvent_t>(made);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const cudaError_t error = enter(__func__);
    const Lock lock(state().mutex);
    state().events.erase(reinterpret_cast<Event *>(event));
    delete reinterpret_cast<Event *>(event);
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER();
    const auto mark = std::make_shared<Mark>();
    Stream *const into = stream_of(stream);
    {
        const Lock lock(state().mutex);
        if (state().notes_calls && reinterpret_cast<Event *>(event)->times) {
            state().noted_calls += "a timing event\n";
        }
        reinterpret_cast<Event *>(event)->captured = into->captured;
        into->newest->is_newest = false;
        into->newest = reinterpret_cast<Event *>(event)->mark = mark;
    }
    submit(stream_of(stream), [mark] {
        const Lock lock(state().mutex);
        mark->when = Clock::now();
        mark->reached = true;
    });
    return cudaSuccess;
}

static std::shared_ptr<Mark> mark_of(cudaEvent_t event)
{
    const Lock lock(state().mutex);
    return reinterpret_cast<Event *>(event)->mark;
}

static void wait_for_mark(const std::shared_ptr<Mark> &mark)
{
    Lock lock(state().mutex);
    state().changed.wait(lock, [&] { return !mark || mark->reached; });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ENTER();
    Stream *const waits = stream_of(stream);
    {
        State &s = state();
        const Lock lock(s.mutex);
        const auto from = reinterpret_cast<Event *>(event)->captured;
        if (from != waits->captured && waits->captured) {
            waits->captured->broken = true;
            return says(cudaErrorStreamCaptureIsolation);
        }
        const bool goes_on = std::any_of(s.streams.begin(), s.streams.end(), [&](Stream *each) {
            return from && each->captured == from;
        });
        if (goes_on) {
            waits->captured = from; /* it joins the capture */
        }
        if (waits->captured) {
            return cudaSuccess; /* captured tasks keep their order in the queue */
        }
    }
    const std::shared_ptr<Mark> mark = mark_of(event);
    submit(waits, [mark] { wait_for_mark(mark); });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER();
    RETURN_IF_FAILED(event_not_captured(reinterpret_cast<Event *>(event)));
    const std::shared_ptr<Mark> mark = mark_of(event);
    if (mark) {
        const Lock lock(state().mutex);
        state().waits_for_newest += mark->is_newest;
    }
    wait_for_mark(mark);
    return lost(current_device);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER();
    RETURN_IF_FAILED(event_not_captured(reinterpret_cast<Event *>(event)));
    const Lock lock(state().mutex);
    const auto &mark = reinterpret_cast<Event *>(event)->mark;
    return !mark || mark->reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    ENTER();
    const std::chrono::duration<float, std::milli> between =
        mark_of(end)->when - mark_of(begin)->when;
    *milliseconds = between.count();
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    ENTER_ANYWAY();
    submit(stream_of(stream), [function, argument] { function(argument); });
    return cudaSuccess;
}

/* ------------------------------------------------------------------ kernels */

/* The builder passes FAKE_CUDA_LAUNCHERS(name) for each kernel. */
#define LAUNCHER(name)                                                                             \
    extern const Variant variant_##name;                                                           \
    Status launch_##name##_cuda(const Sgemm *problem, const Launch *where)                         \
    {                                                                                              \
        return launch(variant_##name.launch[DEVICE_CPU], problem, where);                          \
    }
FAKE_CUDA_LAUNCHERS

#ifndef SGEMM_HIP
#define MANY_LAUNCHER(name)                                                                        \
    Status launch_many_##name##_cuda(const Sgemm *problems, int64_t count, const Launch *where)    \
    {                                                                                              \
        return launch_many(variant_##name.launch_many[DEVICE_CPU], problems, count, where);        \
    }
MANY_LAUNCHER(simt)
MANY_LAUNCHER(auto)
#endif

#ifndef SGEMM_HIP
/* Loaded code is a text that contains the kernel's symbol. Every such kernel multiplies like the
 * variant `simt`. One with "plain" in its name has the parameters (int M, int N, int K, float
 * alpha, const float *A, const float *B, float beta, float *C), and is launched with a block of 8 x
 * 4 threads for each 8 x 4 elements of C, x along its rows. */
extern const Variant variant_simt;

static std::atomic<long> loaded_libraries;

long fake_cuda_libraries(void)
{
    return loaded_libraries;
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, cudaJitOption *, void **,
                                unsigned, cudaLibraryOption *, void **, unsigned)
{
    ENTER();
    RETURN_IF_FAILED(unsafe());
    if (strncmp(static_cast<const char *>(code), "fake", 4) != 0) {
        return cudaErrorInvalidKernelImage;
    }
    *library = reinterpret_cast<cudaLibrary_t>(const_cast<void *>(code));
    ++loaded_libraries;
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    ENTER();
    RETURN_IF_FAILED(unsafe());
    *kernel = reinterpret_cast<cudaKernel_t>(library);
    return strstr(reinterpret_cast<const char *>(library), name) ? cudaSuccess
                                                                 : cudaErrorSymbolNotFound;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t)
{
    RETURN_IF_FAILED(unsafe());
    --loaded_libraries;
    return cudaSuccess;
}

static bool plain_problem(const cudaLaunchConfig_t *config, void **arguments, Sgemm *p)
{
    const auto size = [=](int index) -> int64_t { return *static_cast<int *>(arguments[index]); };
    const auto scalar = [=](int index) { return *static_cast<float *>(arguments[index]); };
    const auto matrix = [=](int index, int64_t rows, int64_t cols) -> Matrix {
        return {*static_cast<float **>(arguments[index]), rows, cols, cols, 1};
    };
    const int64_t M = size(0), N = size(1), K = size(2);
    *p = {matrix(4, M, K), matrix(5, K, N), matrix(7, M, N), scalar(3), scalar(6)};
    return config->gridDim.x == (N + 7) / 8 && config->gridDim.y == (M + 3) / 4 &&
           config->gridDim.z == 1 && config->blockDim.x == 8 && config->blockDim.y == 4 &&
           config->blockDim.z == 1;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                void **arguments)
{
    ENTER();
    Sgemm plain;
    const bool is_plain = strstr(static_cast<const char *>(kernel), "plain") != nullptr;
    if (is_plain && !plain_problem(config, arguments, &plain)) {
        return cudaErrorInvalidConfiguration;
    }
    const Launch where = {current_device, config->stream, nullptr, {}, false};
    const Status status =
        launch(variant_simt.launch[DEVICE_CPU],
               is_plain ? &plain : static_cast<const Sgemm *>(arguments[0]), &where);
    switch (status.code) {
    case STATUS_OK:
        return cudaSuccess;
    case STATUS_OUT_OF_MEMORY:
        return cudaErrorMemoryAllocation;
    default:
        return cudaErrorLaunchFailure;
    }
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int)
{
    ENTER();
    return load(kernel);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel)
{
    ENTER();
    *attributes = {};
    return load(kernel);
}
#endif

cudaError_t launch_blocking_kernel(volatile Blocker *blocker, void *stream)
{
    ENTER();
    submit(stream_named(stream), [blocker] {
        while (!blocker->open) {
            usleep(50);
        }
    });
    return cudaSuccess;
}

cudaError_t launch_strided_copy(const Strided *to, const Strided *from, void *stream)
{
    ENTER();
    const int device = current_device;
    submit(stream_named(stream), [device, wanted_to = *to, wanted_from = *from] {
        Strided to = wanted_to, from = wanted_from;
        bool both;
        {
            const Lock lock(state().mutex);
            both = reachable(&to) && reachable(&from);
        }
        if (both) {
            strided_copy(&to, &from);
        } else {
            lose(device, cudaErrorIllegalAddress);
        }
    });
    return cudaSuccess;
}

#ifndef SGEMM_HIP
cudaError_t launch_combine(const Matrix *C, const Matrix *X, float alpha, float beta, void *stream)
{
    ENTER();
    const int device = current_device;
    submit(stream_named(stream), [device, wanted_C = *C, wanted_X = *X, alpha, beta] {
        Matrix C = wanted_C, X = wanted_X;
        bool both;
        {
            const Lock lock(state().mutex);
            both = reachable(&C, 1) && (!X.data || reachable(&X, 1));
        }
        if (!both) {
            lose(device, cudaErrorIllegalAddress);
            return;
        }
        for (int64_t i = 0; i < C.rows; ++i) {
            for (int64_t j = 0; j < C.cols; ++j) {
                float *const c = C.data + i * C.row_stride + j * C.col_stride;
                const float x = X.data ? alpha * X.data[i * X.row_stride + j * X.col_stride] : 0.0f;
                *c = beta == 0.0f ? x : x + beta * *c;
            }
        }
    });
    return cudaSuccess;
}
#endif

} // extern "C"
