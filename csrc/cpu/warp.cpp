#include "warp.h"

#include "block.h"

namespace {

struct Shuffled {
    unsigned value;
    int from;
    unsigned received;
};

void shuffle(void *const *lanes)
{
    for (int lane = 0; lane < warp_size; ++lane) {
        auto const own = static_cast<Shuffled *>(lanes[lane]);
        const bool there = own->from >= 0 && own->from < warp_size;
        own->received = static_cast<const Shuffled *>(lanes[there ? own->from : lane])->value;
    }
}

struct Vote {
    bool mine;
    unsigned all;
};

void ballot(void *const *lanes)
{
    unsigned all = 0;
    for (int lane = 0; lane < warp_size; ++lane) {
        all |= static_cast<unsigned>(static_cast<const Vote *>(lanes[lane])->mine) << lane;
    }
    for (int lane = 0; lane < warp_size; ++lane) {
        static_cast<Vote *>(lanes[lane])->all = all;
    }
}

void check_mask(unsigned mask, int line)
{
    if (mask != 0xffffffff) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: the mask is 0x%08x: pass 0xffffffff, because "
                                "the CPU device needs all 32 threads of a warp",
                                thread_name(), line, mask));
    }
}

} /* namespace */

int grid_lane()
{
    return block_thread() % warp_size;
}

unsigned grid_shuffle(unsigned mask, unsigned value, int from, int line)
{
    check_mask(mask, line);
    Shuffled mine = {value, from, 0};
    grid_synchronize_warp(line, shuffle, &mine);
    return mine.received;
}

unsigned grid_ballot(unsigned mask, bool predicate, int line)
{
    check_mask(mask, line);
    Vote mine = {predicate, 0};
    grid_synchronize_warp(line, ballot, &mine);
    return mine.all;
}
