/* How the rungs splitk and streamk divide K. */
#include <math.h>

#include "plan.h"

static int64_t ceil_div(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

int plan_splits(const Sgemm *problem, int multiprocessors)
{
    const int64_t tiles = ceil_div(problem->C.rows, 128) * ceil_div(problem->C.cols, 256);
    const int64_t fitting = multiprocessors / tiles, most = problem->A.cols / 64;
    const int64_t splits = fitting < most ? fitting : most;
    return splits > 1 ? (int)splits : 1;
}

StreamPlan plan_stream(int64_t tiles, int64_t steps, int places, int depth)
{
    const double part =
        16.0 / depth; /* steps that take as long as to write or add a part of a tile */
    const int64_t full = tiles / places, whole_waves = full > 0 ? full - 1 : 0;
    const int64_t whole = whole_waves * places, streamed = tiles - whole;
    const int64_t most = streamed * (int64_t)sqrt((double)steps / part);
    const int64_t shares = most < places ? most : places;
    const double waves = (double)(ceil_div(streamed, places) * steps);
    if (shares == 0 || tiles == full * places) {
        return (StreamPlan){tiles, 0};
    }
    const double longest = (double)ceil_div(streamed * steps, shares);
    const int64_t parts = ceil_div(shares, streamed) + 1;
    return longest + part * (double)(1 + parts) < waves ? (StreamPlan){whole, shares}
                                                        : (StreamPlan){tiles, 0};
}
