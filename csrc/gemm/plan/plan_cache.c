#include <math.h>
#include <string.h>

#include "plan.h"

/* A thread's last plans. The hash of a key is its place. */
enum { CACHED = 64 };
typedef struct {
    PlanShape shape;
    PlanDevice device;
} Key;
static _Thread_local struct {
    Key key;
    Plan plan;
} cache[CACHED];

Plan plan_choose(const Sgemm *problem, const PlanDevice *device)
{
    Key key;
    memset(&key, 0, sizeof key);
    key.shape = plan_shape(problem);
    key.device.multiprocessors = device->multiprocessors;
    key.device.widest_cluster = device->widest_cluster;
    key.device.shared_bytes = device->shared_bytes;
    key.device.constants = device->constants;
    uint64_t words[sizeof key / sizeof(uint64_t)], hash = 0;
    memcpy(words, &key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    const size_t place = hash % CACHED;
    if (memcmp(&cache[place].key, &key, sizeof key) != 0 || cache[place].plan.splits == 0) {
        Plan plans[PLANS_MOST];
        const int count = plan_list(&key.shape, device, plans);
        Plan best = plan_fallback();
        best.cycles = HUGE_VAL;
        for (int i = 0; i < count; ++i) {
            best = plans[i].cycles < best.cycles ? plans[i] : best;
        }
        cache[place].key = key;
        cache[place].plan = best;
    }
    return cache[place].plan;
}
