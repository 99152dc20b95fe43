#include "warp.h"

#include <stdio.h>

#include "block.h"
#include "fiber_sanitizers.h"

namespace {

constexpr unsigned all_lanes = 0xffffffffu;
constexpr unsigned undefined = 0xffffffffu; /* as a float, NaN */

/* A thread's share of an exchange. */
struct Share {
    uint64_t mine;
    uint64_t *all;
};

/* Lanes that meet with a mask of their own. */
struct Part {
    unsigned mask, arrived, round;
};

/* Parts of one warp have disjoint masks. All threads of a block share an OS thread. */
__thread Part parts[max_threads / warp_size][warp_size];
__thread Share *shares_of_threads[max_threads];

void exchange_all(void *const *shares)
{
    for (int lane = 0; lane < warp_size; ++lane) {
        uint64_t *const all = static_cast<const Share *>(shares[lane])->all;
        for (int other = 0; all && other < warp_size; ++other) {
            all[other] = static_cast<const Share *>(shares[other])->mine;
        }
    }
}

void describe(const void *what, char *text, size_t bytes)
{
    const Part *const part = static_cast<const Part *>(what);
    snprintf(text, bytes, "the lanes 0x%08x of its warp, of which 0x%08x have come", part->mask,
             part->arrived);
}

/* Waits for the lanes in the mask. Returns those that exist. */
unsigned meet(unsigned mask, Share *share, int line)
{
    const int thread = block_thread(), warp = thread / warp_size, lane = thread % warp_size;
    const unsigned wanted = mask & grid_lanes();
    if (!(mask >> lane & 1u)) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: the mask 0x%08x lacks the thread's own lane, %d",
                                thread_name(), line, mask, lane));
    }
    Part *const part = &parts[warp][__builtin_ctz(mask)];
    if (part->arrived != 0 && part->mask != mask) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: the mask is 0x%08x, and another lane in it waits "
                                "with the mask 0x%08x: lanes that meet pass the same mask",
                                thread_name(), line, mask, part->mask));
    }
    part->mask = mask;
    part->arrived |= 1u << lane;
    Share **const shares = shares_of_threads + warp * warp_size;
    shares[lane] = share;
    if (part->arrived != wanted) {
        block_sleep(part, line, describe);
        return wanted;
    }
    for (int one = 0; one < warp_size; ++one) {
        for (int other = 0; other < warp_size; ++other) {
            if ((wanted >> one & wanted >> other & 1u) && shares[one]->all) {
                shares[one]->all[other] = shares[other]->mine;
            }
        }
    }
    part->arrived = 0;
    ++part->round;
    block_wake(part);
    return wanted;
}

bool is_whole_warp(unsigned mask)
{
    return mask == all_lanes && block_thread_count() % warp_size == 0;
}

} /* namespace */

int grid_lane()
{
    return block_thread() % warp_size;
}

unsigned grid_lanes()
{
    const int thread = block_thread() % block_thread_count(); /* in its block of a cluster */
    const int count = block_thread_count() - thread / warp_size * warp_size;
    return count >= warp_size ? all_lanes : (1u << count) - 1u;
}

unsigned grid_exchange(unsigned mask, uint64_t mine, uint64_t *all, int line)
{
    Share share = {mine, all};
    if (is_whole_warp(mask)) {
        grid_synchronize_warp(line, exchange_all, &share);
        return all_lanes;
    }
    return meet(mask, &share, line);
}

void grid_barrier_of_lanes(unsigned mask, int line)
{
    if (is_whole_warp(mask)) {
        grid_warp_barrier(line);
        return;
    }
    Share share = {0, nullptr};
#ifdef SGEMM_SANITIZED
    Part *const part = &parts[block_thread() / warp_size][mask ? __builtin_ctz(mask) : 0];
    const char *const order = reinterpret_cast<const char *>(part) + part->round % 2;
    sanitizer_hooks.release(order);
    meet(mask, &share, line);
    sanitizer_hooks.acquire(order);
#else
    meet(mask, &share, line);
#endif
}

unsigned grid_shuffle(unsigned mask, unsigned value, int from, int line)
{
    uint64_t all[warp_size];
    const unsigned lanes = grid_exchange(mask, value, all, line);
    if (from < 0 || from >= warp_size) {
        return value;
    }
    return lanes >> from & 1u ? static_cast<unsigned>(all[from]) : undefined;
}

unsigned grid_ballot(unsigned mask, bool predicate, int line)
{
    uint64_t each[warp_size];
    const unsigned lanes = grid_exchange(mask, predicate, each, line);
    unsigned all = 0;
    for (int lane = 0; lane < warp_size; ++lane) {
        all |= static_cast<unsigned>((lanes >> lane & 1u) && each[lane]) << lane;
    }
    return all;
}
