#include "deferred_async.h"

#ifdef SGEMM_DEFERRED_ASYNC

#include <string.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "block.h"

extern "C" char __start_sgemm_shared[], __stop_sgemm_shared[];

/* A checking build runs all blocks on one OS thread, so static data needs no locks. */
namespace {

constexpr int unwritten = 0xff; /* each byte of a NaN, float or half */

/* A pending copy. */
struct Copy {
    char *to;
    int bytes;
    char data[16];
    std::vector<char> tile; /* a TMA copy's data */
    int thread, line;
    unsigned group; /* of the thread; unused by TMA copies */

    const char *source() const
    {
        return tile.empty() ? data : tile.data();
    }
};
typedef std::pair<const uint64_t *, int> Phase; /* barrier, parity */

std::vector<Copy> copies_of_thread[max_threads];    /* only the thread can wait for them */
std::map<Phase, std::vector<Copy>> copies_of_phase; /* complete with a phase */
unsigned groups[max_threads];                       /* committed by each thread */

/* Bytes that a product may still read. */
struct Read {
    const char *from;
    int bytes, line;
};
std::vector<Read> reads;

/* A block's dynamic shared memory, and its view by TMA and products. */
struct Dynamic {
    char *first;
    std::vector<char> view;
};
Dynamic dynamic_of_block[max_cluster];
int dynamic_count; /* blocks of the cluster */
std::vector<char> static_view;

/* Copies whole words like memcpy, but ThreadSanitizer does not attribute them to the running
 * thread. */
void copy_unseen(void *to, const void *from, size_t bytes)
{
    volatile uint32_t *const words = static_cast<uint32_t *>(to);
    const volatile uint32_t *const source = static_cast<const uint32_t *>(from);
    for (size_t i = 0; i < bytes / sizeof *words; ++i) {
        words[i] = source[i];
    }
}

void fill_unseen(void *to, size_t bytes)
{
    volatile uint32_t *const words = static_cast<uint32_t *>(to);
    for (size_t i = 0; i < bytes / sizeof *words; ++i) {
        words[i] = UINT32_MAX;
    }
}

bool overlap(const char *one, int bytes, const char *other, int other_bytes)
{
    return one < other + other_bytes && other < one + bytes;
}

void check_not_read(const char *to, int bytes, int line)
{
    for (const Read &read : reads) {
        if (overlap(to, bytes, read.from, read.bytes)) {
            block_fail(status_error(STATUS_DEVICE,
                                    "%s, line %d: the copy writes shared memory that the "
                                    "product of line %d may still read: wait for the product",
                                    thread_name(), line, read.line));
        }
    }
}

/* Nothing may write to the destination of a pending copy. */
void check_untouched(const Copy &copy, const char *where)
{
    for (int i = 0; i < copy.bytes; ++i) {
        if (static_cast<unsigned char>(where[i]) != unwritten) {
            block_fail(status_error(STATUS_DEVICE,
                                    "shared memory was written while the copy of line %d, %s, "
                                    "was in flight to it",
                                    copy.line, thread_name(copy.thread)));
        }
    }
}

void land(const Copy &copy)
{
    check_untouched(copy, copy.to);
    copy_unseen(copy.to, copy.source(), static_cast<size_t>(copy.bytes));
    if (!copy.tile.empty()) {
        char *const view = static_cast<char *>(deferred_async_view(copy.to, copy.line));
        check_untouched(copy, view);
        copy_unseen(view, copy.source(), static_cast<size_t>(copy.bytes));
    }
}

template <class Which> void land_those(std::vector<Copy> *copies, const Which &which)
{
    auto left = copies->begin();
    for (auto copy = copies->begin(); copy != copies->end(); ++copy) {
        if (which(*copy)) {
            land(*copy);
        } else if (left++ != copy) {
            left[-1] = std::move(*copy);
        }
    }
    copies->erase(left, copies->end());
}

} /* namespace */

void *deferred_async_view(const void *shared, int line)
{
    const char *const byte = static_cast<const char *>(shared);
    Dynamic &dynamic = dynamic_of_block[grid_cluster_rank()];
    if (byte >= dynamic.first && byte < dynamic.first + dynamic.view.size()) {
        return &dynamic.view[static_cast<size_t>(byte - dynamic.first)];
    }
    if (byte >= __start_sgemm_shared && byte < __stop_sgemm_shared) {
        return &static_view[static_cast<size_t>(byte - __start_sgemm_shared)];
    }
    block_fail(status_error(STATUS_DEVICE,
                            "%s, line %d: the address is outside the block's shared memory",
                            thread_name(), line));
}

void deferred_async_view_all()
{
    Dynamic &dynamic = dynamic_of_block[grid_cluster_rank()];
    copy_unseen(dynamic.view.data(), dynamic.first, dynamic.view.size());
    copy_unseen(static_view.data(), __start_sgemm_shared, static_view.size());
}

void deferred_async_copy(void *to, const void *data, int bytes, int line)
{
    const int thread = block_thread();
    Copy copy = {static_cast<char *>(to), bytes, {}, {}, thread, line, groups[thread]};
    memcpy(copy.data, data, static_cast<size_t>(bytes));
    check_not_read(copy.to, bytes, line);
    copies_of_thread[thread].push_back(copy);
}

void deferred_async_commit()
{
    ++groups[block_thread()];
}

void deferred_async_wait(int left)
{
    const int thread = block_thread();
    const auto waited_for = [=](const Copy &copy) {
        return copy.thread == thread && copy.tile.empty() &&
               copy.group + static_cast<unsigned>(left) < groups[thread];
    };
    land_those(&copies_of_thread[thread], waited_for);
    for (auto &entry : copies_of_phase) {
        land_those(&entry.second, waited_for);
    }
}

void deferred_async_attach(const uint64_t *barrier, int parity)
{
    std::vector<Copy> &own = copies_of_thread[block_thread()];
    std::vector<Copy> &all = copies_of_phase[{barrier, parity}];
    all.insert(all.end(), own.begin(), own.end());
    own.clear();
}

void deferred_async_tile(void *to, const void *data, int bytes, const uint64_t *barrier, int parity,
                         int line)
{
    char *const first = static_cast<char *>(to);
    const char *const from = static_cast<const char *>(data);
    check_not_read(first, bytes, line);
    for (const auto &entry : copies_of_phase) {
        for (const Copy &other : entry.second) {
            if (overlap(first, bytes, other.to, other.bytes)) {
                block_fail(status_error(STATUS_DEVICE,
                                        "%s, line %d: the copy writes shared memory to which "
                                        "the copy of line %d is still in flight",
                                        thread_name(), line, other.line));
            }
        }
    }
    fill_unseen(to, static_cast<size_t>(bytes));
    fill_unseen(deferred_async_view(to, line), static_cast<size_t>(bytes));
    copies_of_phase[{barrier, parity}].push_back(
        {first, bytes, {}, {from, from + bytes}, block_thread(), line, 0});
}

void deferred_async_land(const uint64_t *barrier, int parity)
{
    const auto found = copies_of_phase.find({barrier, parity});
    if (found != copies_of_phase.end()) {
        land_those(&found->second, [](const Copy &) { return true; });
    }
}

void deferred_async_read_begins(const void *from, int bytes, int line)
{
    const char *const first = static_cast<const char *>(from);
    for (const auto &entry : copies_of_phase) {
        for (const Copy &copy : entry.second) {
            if (!copy.tile.empty() && overlap(first, bytes, copy.to, copy.bytes)) {
                block_fail(status_error(STATUS_DEVICE,
                                        "%s, line %d: the product reads shared memory to which "
                                        "the copy of line %d is still in flight",
                                        thread_name(), line, copy.line));
            }
        }
    }
    reads.push_back({first, bytes, line});
}

void deferred_async_read_ends(const void *from, int line)
{
    reads.erase(std::find_if(reads.begin(), reads.end(), [=](const Read &read) {
        return read.from == from && read.line == line;
    }));
}

void deferred_async_block_begins()
{
    for (auto &copies : copies_of_thread) {
        copies.clear();
    }
    copies_of_phase.clear();
    reads.clear();
    std::fill_n(groups, max_threads, 0u);
    dynamic_count = 0;
    static_view.assign(static_cast<size_t>(__stop_sgemm_shared - __start_sgemm_shared),
                       static_cast<char>(unwritten));
}

void deferred_async_shared_begins(void *dynamic, size_t bytes)
{
    Dynamic &of_block = dynamic_of_block[dynamic_count++];
    of_block.first = static_cast<char *>(dynamic);
    of_block.view.assign(bytes, static_cast<char>(unwritten));
}

void deferred_async_block_ends()
{
    const auto check = [](const char *what, int line) {
        block_fail(status_error(STATUS_DEVICE,
                                "the block ended, but no thread waited for the %s of line %d", what,
                                line));
    };
    const auto check_copy = [check](const Copy &copy) {
        if (!copy.tile.empty() || !grid_check.lets_copies_end_late) {
            check("copy", copy.line);
        }
    };
    for (const Read &read : reads) {
        check("product", read.line);
    }
    for (const auto &copies : copies_of_thread) {
        for (const Copy &copy : copies) {
            check_copy(copy);
        }
    }
    for (const auto &entry : copies_of_phase) {
        for (const Copy &copy : entry.second) {
            check_copy(copy);
        }
    }
}

#endif
