/* The loops of a kernel: which round of a loop an access belongs to, and whether a loop ever ends.
 *
 * A jump to an earlier basic block of the same function begins the next round of a loop, which
 * extends from that block to the one before the jump. */
#include <stdio.h>
#include <unistd.h>

#include <algorithm>

#include "sanitizer_parts.h"

namespace {

struct Loop {
    int depth;
    Site first, last;
    bool logged; /* it is in the kernel's own body and contains accesses to arrays */
    std::vector<unsigned> ends[max_threads]; /* by thread: the steps that ended its rounds */
};

std::vector<Loop *> loops;         /* kept until the program ends */
std::vector<size_t> loop_at_first; /* by first site: the number of the loop, from 1 */

/* A block that reads and writes nothing new for this many steps does not end: a kernel takes a few
 * steps for each multiply-add. */
constexpr double idle_at_least = 5e6, idle_per_multiply_add = 3;
int64_t most_idle_steps;
int64_t steps_left;   /* until then */
int64_t progress = 1; /* increases when the block reads or writes something new */

/* Tells the endless loop: the running thread has passed it again and again until now. Loops inside
 * it have more rounds. */
[[noreturn]] void tell_endless()
{
    Running &own = *running;
    Site site = present_site();
    int64_t rounds = 0;
    for (size_t index = 0; index < own.idle.size(); ++index) {
        const IdleRounds &loop = own.idle[index];
        const bool now = own.step - loop.latest <= (own.step - own.all.latest) / 2;
        if (loop.progress == progress && loop.rounds > 2 && now &&
            (rounds == 0 || loop.rounds < rounds)) {
            site = site_to_tell(loops[index]->first, loops[index]->depth);
            rounds = loop.rounds;
        }
    }
    tell("endless", site, "",
         formatted("thread %d has passed this loop %lld times since any thread of its block read "
                   "or wrote a new element: the loop never ends",
                   thread_in_block(), static_cast<long long>(rounds)));
    fflush(stdout);
    _exit(3); /* as driver.cpp does after a finding */
}

size_t loop_from(Site first, int depth)
{
    const auto at = static_cast<size_t>(first);
    if (loop_at_first.size() <= at) {
        loop_at_first.resize(at + 1);
    }
    if (!loop_at_first[at]) {
        loops.push_back(new Loop{depth, first, first, false, {}});
        loop_at_first[at] = loops.size();
    }
    return loop_at_first[at] - 1;
}

/* The running thread jumps back from the basic block at `last` to the one at `first`. */
void begin_round(Site first, Site last, int depth)
{
    Running &own = *running;
    const size_t index = loop_from(first, depth);
    if (own.idle.size() <= index) {
        own.idle.resize(index + 1);
    }
    if (own.all.progress != progress) {
        own.all = {progress, 0, own.step};
    }
    IdleRounds &idle = own.idle[index];
    idle = {progress, idle.progress == progress ? idle.rounds + 1 : 1, own.step};
    if (depth != kernel_depth) {
        return;
    }
    /* The last basic block may contain accesses, whose sites follow its own. */
    if (own.access_at >= own.began_at[depth] && own.access > last) {
        last = own.access;
    }
    Loop *const loop = loops[index];
    loop->last = std::max(loop->last, last);
    loop->logged = loop->logged || (first <= own.access && own.access <= loop->last);
    if (loop->logged) {
        loop->ends[own.number].push_back(own.step);
    }
}

/* How many rounds of the loop had ended at the access. */
int64_t round_of(const Loop &loop, const Touch &touch)
{
    const std::vector<unsigned> &ends = loop.ends[touch.thread];
    return std::upper_bound(ends.begin(), ends.end(), touch.step) - ends.begin();
}

} // namespace

void has_progressed()
{
    steps_left = most_idle_steps;
    ++progress;
}

void rounds_product_begins(double multiply_adds)
{
    most_idle_steps = static_cast<int64_t>(idle_at_least + idle_per_multiply_add * multiply_adds);
}

void rounds_block_begins()
{
    has_progressed();
    for (Loop *const loop : loops) {
        for (std::vector<unsigned> &ends : loop->ends) {
            ends.clear();
        }
    }
}

void step_to(Site site)
{
    Running &own = *running;
    const int depth = std::min(own.depth, most_depth - 1);
    if (--steps_left < 0) {
        tell_endless();
    }
    ++own.step;
    const Site last = own.block_at[depth];
    if (site <= last) {
        begin_round(site, last, depth);
    }
    own.block_at[depth] = site;
    own.began_at[depth] = own.step;
}

Rounds rounds_between(const Touch &one, const Touch &other)
{
    std::vector<const Loop *> around;
    for (const Loop *const loop : loops) {
        if (loop->logged && loop->first <= std::min(one.in_kernel, other.in_kernel) &&
            std::max(one.in_kernel, other.in_kernel) <= loop->last) {
            around.push_back(loop);
        }
    }
    std::sort(around.begin(), around.end(), /* the outermost one begins first */
              [](const Loop *one, const Loop *inner) { return one->first < inner->first; });
    for (const Loop *const loop : around) {
        const int64_t ahead = round_of(*loop, one) - round_of(*loop, other);
        if (ahead != 0) {
            return {true, static_cast<int>(ahead)};
        }
    }
    return {!around.empty(), 0};
}
