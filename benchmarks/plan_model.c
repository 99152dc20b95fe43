/* The estimate of csrc/gemm/plan/plan.c for many plans at once: plan_model.py calls it. */
#include "../csrc/gemm/plan/plan.h"

#define CONSTANT(name, value) #name,
#define TILE(BM, BN, BK, ...) "slots_" #BM "x" #BN "x" #BK,
static const char *const names[] = {PLAN_CONSTANTS(CONSTANT) TILES(TILE)};
#undef TILE
#undef CONSTANT

int count_constants(void)
{
    return sizeof names / sizeof *names;
}

const char *constant_name(int index)
{
    return names[index];
}

/* Plan number i is of problem number of[i]. */
void estimate_plans(int count, const Sgemm *problems, const int *of, const Plan *plans,
                    const PlanDevice *device, double *cycles)
{
    for (int i = 0; i < count; ++i) {
        cycles[i] = plan_estimate(plans + i, problems + of[i], device);
    }
}
