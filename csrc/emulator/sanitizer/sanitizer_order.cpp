/* Which accesses happen before which: barriers, fences, atomic operations, asynchronous copies. */
#include <algorithm>

#include "sanitizer_parts.h"

unsigned clocks[max_threads][max_threads];
std::vector<std::vector<Word *>> copies_of_thread[max_threads];
bool copying;
bool uses_mbarriers;

namespace {

std::map<const void *, std::vector<unsigned>> left_at;
/* The same for threads of other blocks, which fences and atomic operations order. An atomic
 * operation publishes the thread's clocks of its last fence, and receives what others
 * published. These count from the thread's next fence on. Barriers pass them on, too. A cluster
 * counts as one block here. */
typedef std::map<int64_t, std::vector<unsigned>> Clocks; /* by block, or by cluster */
Clocks of_others[max_threads], at_fence[max_threads], came_with_atomics[max_threads];
std::map<const void *, Clocks> others_left_at, went_with_atomics;
/* Words that asynchronous copies are writing, by the barrier phase that completes them. */
std::map<const void *, std::vector<Word *>> copies_of_phase;

/* The threads that have arrived at a named barrier, and their clocks. */
struct Arrivals {
    unsigned round;
    std::vector<std::pair<int, unsigned>> now, before; /* in this round, and in the one before */
};
std::map<std::pair<int, int>, Arrivals> named_barriers; /* by rank in the cluster and number */

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

/* Completes copies: threads that know this clock of the copying thread are ordered after them. */
void land(const std::vector<Word *> &copies, unsigned clock)
{
    for (Word *word : copies) {
        word->writer.on_its_way = false;
        word->writer.clock = std::max(word->writer.clock, clock);
    }
}

} // namespace

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

bool has_copies_on_their_way(int thread)
{
    const auto &groups = copies_of_thread[thread];
    return std::any_of(groups.begin(), groups.end(),
                       [](const std::vector<Word *> &group) { return !group.empty(); });
}

void order_launch_begins()
{
    went_with_atomics.clear();
    uses_mbarriers = false;
}

void order_block_begins()
{
    for (int thread = 0; thread < max_threads; ++thread) {
        std::fill_n(clocks[thread], max_threads, 0u);
        clocks[thread][thread] = 1;
        of_others[thread].clear();
        at_fence[thread].clear();
        came_with_atomics[thread].clear();
        copies_of_thread[thread].assign(1, {});
    }
    copies_of_phase.clear();
    named_barriers.clear();
    left_at.clear();
    others_left_at.clear();
}

/* ------------------------------------------------------------------ asynchronous copies */

void grid_copy_commit()
{
    copies_of_thread[running->number].push_back({});
}

void grid_copy_wait(int left)
{
    const int thread = running->number;
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
    auto &groups = copies_of_thread[running->number];
    auto &copies =
        copies_of_phase[reinterpret_cast<char *>(barrier) + grid_mbarrier_parity(barrier, line)];
    for (const auto &group : groups) {
        copies.insert(copies.end(), group.begin(), group.end());
        done.copied_to_mbarriers += blockIdx.x == 0 ? static_cast<int64_t>(group.size()) : 0;
    }
    groups.assign(1, {});
    grid_mbarrier_arrive(barrier, line);
}

/* Declared in traced.h. A TMA copy, chunk by chunk. No thread may touch its target before
 * the barrier's phase completes. */
void traced_tile(void *to, const TensorMap *map, uint64_t *barrier, int, int, int, int line)
{
    constexpr int chunk_bytes = 16;
    const auto first = reinterpret_cast<uintptr_t>(to);
    const Site here = site_to_tell(site_of(__builtin_return_address(0)));
    const unsigned bytes = static_cast<unsigned>(bytes_of_row(map) * map->tile_outer);
    auto &group = copies_of_thread[running->number].back();
    const size_t before = group.size();
    copying = true;
    for (unsigned at = 0; at < bytes; at += chunk_bytes) {
        const uintptr_t chunk = swizzled_address(first + at, map->swizzle);
        look(reinterpret_cast<const void *>(chunk), chunk_bytes, true, false, here);
    }
    copying = false;
    auto &copies =
        copies_of_phase[reinterpret_cast<char *>(barrier) + grid_mbarrier_parity(barrier, line)];
    for (size_t i = before; i < group.size(); ++i) {
        copies.push_back(group[i]);
    }
    group.resize(before);
    has_progressed();
}

/* ------------------------------------------------------------------ called by the CPU device */

void sanitize_release(const void *object)
{
    const int thread = running->number;
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

void sanitize_acquire(const void *object)
{
    const int thread = running->number;
    const std::vector<unsigned> &left = left_at[object];
    const auto copies = copies_of_phase.find(object);
    if (copies != copies_of_phase.end()) {
        land(copies->second, 0); /* the barrier passes on the clocks of the arrived threads */
        /* A TMA copy may begin after its thread's arrival, but belongs to the same phase. */
        for (Word *word : copies->second) {
            unsigned &clock = word->writer.clock;
            const auto writer = static_cast<size_t>(word->writer.thread);
            clock = std::min(clock, writer < left.size() ? left[writer] : 0);
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

void sanitize_fence()
{
    const int thread = running->number;
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

void sanitize_barrier()
{
    done.barriers += blockIdx.x == 0 && running->number == 0;
    done.new_inputs[running->number] = 0;
}

/* A thread that may arrive before an earlier round is complete may take the place of a thread of
 * that round. */
void sanitize_named_barrier(int rank, int id, unsigned round)
{
    const int thread = running->number;
    Arrivals &arrivals = named_barriers[{rank, id}];
    if (arrivals.round != round) {
        arrivals.before.swap(arrivals.now);
        arrivals.now.clear();
        arrivals.round = round;
    }
    for (const auto &other : arrivals.before) {
        if (clocks[thread][other.first] < other.second) {
            tell("race", present_site(), "",
                 formatted("thread %d arrives at named barrier %d, and so did thread %d before, in "
                           "another group: no barrier is between them, so a GPU may count both in "
                           "one round; each group needs a named barrier of its own",
                           thread_in_block(), id, other.first % threads_of_block()));
            break;
        }
    }
    arrivals.now.emplace_back(thread, clocks[thread][thread]);
}

void sanitize_called_from(const void *returns_to)
{
    if (const Site site = site_of(returns_to)) {
        running->latest = site;
    }
}

void sanitize_atomic(const void *address, size_t bytes)
{
    const int thread = running->number;
    const Site here = present_site();
    ++done.atomics;
    const auto word = reinterpret_cast<uintptr_t>(address);
    const Array *const array = array_at(word);
    if (array && is_unset_C(*array, word)) {
        tell("uninitialized read", here, array->name,
             formatted("thread %d adds to %s, and no thread has set it: beta is 0",
                       thread_in_block(), element_of(*array, word).c_str()));
    }
    look(address, static_cast<int>(bytes), true, true, here);
    Clocks *const went = &went_with_atomics[address];
    add_clocks(went, at_fence[thread]);
    add_clocks(&came_with_atomics[thread], *went);
}
