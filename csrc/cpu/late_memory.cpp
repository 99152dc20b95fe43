#include "late_memory.h"

#ifdef SGEMM_LATE

#include <string.h>

#include <algorithm>
#include <vector>

/* One OS thread runs the blocks of a checking build, so that all is plain data. */
namespace {

typedef std::vector<char> Bytes;

/* What becomes of a byte that the block has stored: others see it after the next atomic operation. */
enum State : char { received, stored, fenced };

struct Memory {
    char *bytes;
    size_t count;
    Bytes first;    /* as the grid found it */
    Bytes released; /* as a block sees it that has heard of everybody */
    Bytes last;     /* as the grid leaves it */
    Bytes seen;     /* as the block last did */
    Bytes at_fence; /* what the block had stored, where it is fenced */
    std::vector<State> states;

    void look()
    {
        for (size_t i = 0; i < count; ++i) {
            if (bytes[i] != seen[i]) {
                seen[i] = last[i] = bytes[i];
                states[i] = stored;
            }
        }
    }
    void show(size_t i, char value)
    {
        bytes[i] = seen[i] = value;
        states[i] = received;
    }
};

std::vector<Memory> memories;
bool heard; /* the block has made an atomic operation since its last fence */

} /* namespace */

void late_memory_taken(void *memory, size_t bytes)
{
    memories.push_back({static_cast<char *>(memory), bytes, {}, {}, {}, {}, {}, {}});
}

void late_memory_given(void *memory)
{
    memories.erase(std::find_if(memories.begin(), memories.end(),
                                [=](const Memory &m) { return m.bytes == memory; }));
}

void late_grid_begins()
{
    for (Memory &m : memories) {
        m.first = m.released = m.last = m.seen = m.at_fence = Bytes(m.bytes, m.bytes + m.count);
        m.states.assign(m.count, received);
    }
}

void late_grid_ends()
{
    for (Memory &m : memories) {
        std::copy(m.last.begin(), m.last.end(), m.bytes);
    }
}

void late_memory_of_block_begins()
{
    heard = false;
    for (Memory &m : memories) {
        m.seen = m.first;
        std::copy(m.first.begin(), m.first.end(), m.bytes);
        m.states.assign(m.count, received);
    }
}

void late_memory_of_block_ends()
{
    for (Memory &m : memories) {
        m.look();
    }
}

void late_fence()
{
    for (Memory &m : memories) {
        m.look();
        for (size_t i = 0; i < m.count; ++i) {
            if (m.states[i] == stored) {
                m.states[i] = fenced;
                m.at_fence[i] = m.bytes[i];
            } else if (m.states[i] == received && heard) {
                m.show(i, m.released[i]);
            }
        }
    }
    heard = false;
}

void late_atomic_begins(void *address, size_t bytes)
{
    for (Memory &m : memories) {
        m.look();
        for (size_t i = 0; i < m.count; ++i) {
            if (m.states[i] == fenced) {
                m.released[i] = m.at_fence[i];
                m.states[i] = received;
            }
        }
        const ptrdiff_t at = static_cast<char *>(address) - m.bytes;
        for (size_t i = 0; i < bytes && at >= 0 && static_cast<size_t>(at) < m.count; ++i) {
            m.show(static_cast<size_t>(at) + i, m.released[static_cast<size_t>(at) + i]);
        }
    }
}

void late_atomic_ends(void *address, size_t bytes)
{
    heard = true;
    for (Memory &m : memories) {
        const ptrdiff_t at = static_cast<char *>(address) - m.bytes;
        for (size_t i = 0; i < bytes && at >= 0 && static_cast<size_t>(at) < m.count; ++i) {
            const size_t byte = static_cast<size_t>(at) + i;
            m.released[byte] = m.last[byte] = m.bytes[byte];
            m.show(byte, m.bytes[byte]);
        }
    }
}

#endif
