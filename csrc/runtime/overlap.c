#include "overlap.h"

#include <stdlib.h>

enum { MOST_STEPS = VIEW_AXES };
enum { MOST_TRIED = 100000 }; /* sums, before the answer is OVERLAP_UNKNOWN: milliseconds */
static const int64_t furthest = INT64_C(1)
                                << 60; /* no array reaches so far: sums cannot overflow */

/* A multiple of `bytes`: at least 0, and at most `times` of them. */
typedef struct {
    int64_t bytes, times;
} Step;

/* All sums of one multiple of each step. */
typedef struct {
    int count;
    Step steps[MOST_STEPS];
    int64_t reach; /* the largest sum */
} Sums;

/* Adds a step for an axis. False if the sums become too large. */
static bool add(Sums *sums, int64_t bytes, int64_t times)
{
    int64_t reach;
    if (bytes == INT64_MIN || __builtin_mul_overflow(llabs(bytes), times, &reach) ||
        reach > furthest - sums->reach) {
        return false;
    }
    if (reach > 0) {
        sums->steps[sums->count++] = (Step){llabs(bytes), times};
        sums->reach += reach;
    }
    return true;
}

static int by_bytes(const void *a, const void *b)
{
    const int64_t one = ((const Step *)a)->bytes, other = ((const Step *)b)->bytes;
    return (one > other) - (one < other);
}

/* Sorts the steps, and merges two where their sums are all multiples of the shorter one. */
static void simplify(Sums *sums)
{
    qsort(sums->steps, (size_t)sums->count, sizeof *sums->steps, by_bytes);
    int kept = 0;
    for (int index = 0; index < sums->count; ++index) {
        const Step step = sums->steps[index];
        Step *const last = kept > 0 ? &sums->steps[kept - 1] : NULL;
        if (last && step.bytes % last->bytes == 0 && step.bytes / last->bytes <= last->times + 1) {
            last->times += step.bytes / last->bytes * step.times;
        } else {
            sums->steps[kept++] = step;
        }
    }
    sums->count = kept;
}

/* Whether a sum of the first `count` steps, which reach so far, is from `low` to `high`. */
static Overlap search(const Step *steps, int count, int64_t reach, int64_t low, int64_t high,
                      int *tried)
{
    if (low > reach || high < 0) {
        return OVERLAP_NONE;
    }
    if (low <= 0) {
        return OVERLAP_FOUND;
    }
    /* Here 0 < low <= reach, so there is a step. */
    const Step last = steps[count - 1];
    const int64_t rest = reach - last.bytes * last.times;
    const int64_t least = low > rest ? (low - rest + last.bytes - 1) / last.bytes : 0;
    int64_t most = high / last.bytes;
    most = most < last.times ? most : last.times;
    for (int64_t times = most; times >= least; --times) {
        if (++*tried > MOST_TRIED) {
            return OVERLAP_UNKNOWN;
        }
        const int64_t taken = times * last.bytes;
        const Overlap found = search(steps, count - 1, rest, low - taken, high - taken, tried);
        if (found != OVERLAP_NONE) {
            return found;
        }
    }
    return OVERLAP_NONE;
}

/* Whether an element of `size` bytes at a sum shares a byte with one of `other` bytes at `target`.
 */
static Overlap comes_near(Sums *sums, int64_t size, int64_t target, int64_t other, int *tried)
{
    simplify(sums);
    return search(sums->steps, sums->count, sums->reach, target - (size - 1), target + (other - 1),
                  tried);
}

Overlap overlap_within(const View *array)
{
    const int64_t size = element_bytes(array->type);
    int tried = 0;
    bool touches = false; /* neighbours along an axis share a byte */
    Sums all = {0};
    for (int axis = 0; axis < array->axes; ++axis) {
        const int64_t length = array->shape[axis], bytes = array->bytes[axis];
        if (length == 0) {
            return OVERLAP_NONE;
        }
        if (length > 1) {
            touches = touches || (bytes < size && bytes > -size) ||
                      !add(&all, bytes, length - 1); /* the addresses wrap */
        }
    }
    if (touches) {
        return OVERLAP_FOUND;
    }
    qsort(all.steps, (size_t)all.count, sizeof *all.steps, by_bytes);
    /* Two elements differ by a multiple of each axis, of either sign. The multiple of the last axis
     * that is not 0, in the order of the strides, is positive for one of the two. */
    for (int last = 1; last < all.count; ++last) {
        Sums differences = {0};
        int64_t below = 0;
        for (int axis = 0; axis < last; ++axis) {
            below += all.steps[axis].bytes * all.steps[axis].times;
            add(&differences, all.steps[axis].bytes, 2 * all.steps[axis].times);
        }
        add(&differences, all.steps[last].bytes, all.steps[last].times - 1);
        const Overlap found =
            comes_near(&differences, size, below - all.steps[last].bytes, size, &tried);
        if (found != OVERLAP_NONE) {
            return found;
        }
    }
    return OVERLAP_NONE;
}

Overlap overlap_between(const Strided *one, const Strided *other)
{
    const Extent of_one = strided_extent(one), of_other = strided_extent(other);
    if (of_one.first >= of_other.end || of_other.first >= of_one.end) {
        return OVERLAP_NONE;
    }
    Sums sums = {0};
    if (!add(&sums, other->row_bytes, other->rows - 1) ||
        !add(&sums, other->col_bytes, other->cols - 1)) {
        return OVERLAP_UNKNOWN;
    }
    /* From the first byte of `one` to the last element of `other`: counted back from there, the
     * steps of `other` add up, too. */
    const int64_t target = (int64_t)(of_other.first - of_one.first) + sums.reach;
    int tried = 0;
    return add(&sums, one->row_bytes, one->rows - 1) && add(&sums, one->col_bytes, one->cols - 1)
               ? comes_near(&sums, element_bytes(one->type), target, element_bytes(other->type),
                            &tried)
               : OVERLAP_UNKNOWN;
}
