#include "deferred_async_memory.h"

#ifdef SGEMM_DEFERRED_ASYNC

#include <string.h>

#include <algorithm>
#include <set>
#include <vector>

/* A checking build runs all blocks on one OS thread, so static data needs no locks. */
namespace {

typedef std::vector<char> Bytes;

/* The state of a byte that the block has stored. If fenced, the next atomic operation publishes
 * it. */
enum State : char { received, stored, fenced };

constexpr size_t piece = 4096; /* bytes compared at a time */

struct Memory {
    char *bytes;
    size_t count;
    Bytes first;    /* when the grid started */
    Bytes released; /* as seen after all published stores */
    Bytes last;     /* when the grid ends */
    Bytes seen;     /* as the block last saw it */
    Bytes at_fence; /* the block's fenced stores */
    std::vector<State> states;
    std::set<size_t> touched;   /* pieces changed here since the grid started, */
    std::set<size_t> published; /* and pieces changed in `released` */

    void begin_grid()
    {
        first = released = last = seen = at_fence = Bytes(bytes, bytes + count);
        states.assign(count, received);
        touched.clear();
        published.clear();
    }
    void begin_block()
    {
        for (const size_t begin : touched) {
            const size_t length = end_of(begin) - begin;
            memcpy(bytes + begin, &first[begin], length);
            memcpy(&seen[begin], &first[begin], length);
            std::fill_n(&states[begin], length, received);
        }
        touched.clear();
    }
    size_t end_of(size_t begin) const
    {
        return std::min(begin + piece, count);
    }
    void look()
    {
        for (size_t begin = 0; begin < count; begin += piece) {
            if (memcmp(bytes + begin, &seen[begin], end_of(begin) - begin) == 0) {
                continue;
            }
            touched.insert(begin);
            for (size_t i = begin; i < end_of(begin); ++i) {
                if (bytes[i] != seen[i]) {
                    seen[i] = last[i] = bytes[i];
                    states[i] = stored;
                }
            }
        }
    }
    void show(size_t i, char value)
    {
        bytes[i] = seen[i] = value;
        states[i] = received;
    }
    void fence()
    {
        for (const size_t begin : touched) {
            for (size_t i = begin; i < end_of(begin); ++i) {
                if (states[i] == stored) {
                    states[i] = fenced;
                    at_fence[i] = bytes[i];
                }
            }
        }
    }
    void receive()
    {
        for (const size_t begin : published) {
            touched.insert(begin);
            for (size_t i = begin; i < end_of(begin); ++i) {
                if (states[i] == received) {
                    show(i, released[i]);
                }
            }
        }
    }
    void release()
    {
        for (const size_t begin : touched) {
            for (size_t i = begin; i < end_of(begin); ++i) {
                if (states[i] == fenced) {
                    released[i] = at_fence[i];
                    states[i] = received;
                    published.insert(begin);
                }
            }
        }
    }
    /* Calls what(index) for each byte of an operand in this memory. */
    template <class What> void each_of(const void *operand, size_t operand_bytes, const What &what)
    {
        const auto at = static_cast<size_t>(static_cast<const char *>(operand) - bytes);
        for (size_t i = at; at < count && i < at + operand_bytes; ++i) {
            touched.insert(i / piece * piece);
            published.insert(i / piece * piece);
            what(i);
        }
    }
};

std::vector<Memory> memories;
bool heard; /* the block has executed an atomic operation since its last fence */

} /* namespace */

void deferred_async_memory_allocated(void *memory, size_t bytes)
{
    Memory taken = {};
    taken.bytes = static_cast<char *>(memory);
    taken.count = bytes;
    memories.push_back(taken);
}

void deferred_async_memory_freed(void *memory)
{
    memories.erase(std::find_if(memories.begin(), memories.end(),
                                [=](const Memory &m) { return m.bytes == memory; }));
}

size_t deferred_async_memory_left()
{
    size_t bytes = 0;
    for (const Memory &m : memories) {
        bytes += m.count;
    }
    memories.clear();
    return bytes;
}

void deferred_async_grid_begins()
{
    for (Memory &m : memories) {
        m.begin_grid();
    }
}

void deferred_async_grid_ends()
{
    for (Memory &m : memories) {
        std::copy(m.last.begin(), m.last.end(), m.bytes);
    }
}

void deferred_async_memory_of_block_begins()
{
    heard = false;
    for (Memory &m : memories) {
        m.begin_block();
    }
}

void deferred_async_memory_of_block_ends()
{
    for (Memory &m : memories) {
        m.look();
    }
}

void deferred_async_fence()
{
    for (Memory &m : memories) {
        m.look();
        if (heard) {
            m.receive();
        }
        m.fence();
    }
    heard = false;
}

void deferred_async_atomic_begins(void *address, size_t bytes)
{
    for (Memory &m : memories) {
        m.look();
        m.release();
        m.each_of(address, bytes, [&m](size_t i) { m.show(i, m.released[i]); });
    }
}

void deferred_async_atomic_ends(void *address, size_t bytes)
{
    heard = true;
    for (Memory &m : memories) {
        m.each_of(address, bytes, [&m](size_t i) {
            m.released[i] = m.last[i] = m.bytes[i];
            m.show(i, m.bytes[i]);
        });
    }
}

#endif
