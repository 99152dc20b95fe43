#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"

#define CONSTANT(name, value) value,
#define TILE(BM, BN, BK, WM, WN, TM, TN, SLICES, BLOCKS, SLOTS) SLOTS,
const PlanConstants plan_fitted = {PLAN_CONSTANTS(CONSTANT){TILES(TILE)}};
#undef TILE
#undef CONSTANT

enum { MODELS = 16 };
static struct {
    char model[256];
    PlanConstants constants;
} kept[MODELS];
static atomic_int kept_count;

static const PlanConstants *find_kept(const char *model)
{
    const int count = atomic_load(&kept_count);
    for (int i = 0; i < count; ++i) {
        if (strcmp(kept[i].model, model) == 0) {
            return &kept[i].constants;
        }
    }
    return NULL;
}

void plan_keep(const char *model, const PlanConstants *constants)
{
    const int count = atomic_load(&kept_count);
    if (count < MODELS && !find_kept(model)) {
        snprintf(kept[count].model, sizeof kept[count].model, "%s", model);
        kept[count].constants = *constants;
        atomic_store(&kept_count, count + 1);
    }
}

const PlanConstants *plan_constants(const char *model)
{
    const PlanConstants *const found = find_kept(model);
    return found ? found : &plan_fitted;
}
