#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

#define CONSTANT(name, value) value,
#define TILE(BM, BN, BK, WM, WN, TM, TN, SLICES, BLOCKS, SLOTS) SLOTS,
const PlanConstants plan_fitted = {PLAN_CONSTANTS(CONSTANT){TILES(TILE)}};
#undef TILE
#undef CONSTANT

enum { MODELS = 16 };
/* Never changed or freed once published: other threads read it without a lock. */
typedef struct Kept {
    char model[256];
    PlanConstants constants;
    const struct Kept *before; /* the entry that this one replaces */
} Kept;
static const Kept *kept[MODELS];
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

void plan_keep(const char *model, const PlanConstants *constants)
{
    Kept *const made = calloc(1, sizeof *made);
    if (!made) {
        return; /* the old constants stay in use; no result changes */
    }
    snprintf(made->model, sizeof made->model, "%s", model);
    made->constants = *constants;
    pthread_mutex_lock(&keeping);
    int place = 0;
    while (place < MODELS && kept[place] && strcmp(kept[place]->model, model) != 0) {
        ++place;
    }
    if (place < MODELS) {
        made->before = kept[place];
        __atomic_store_n(&kept[place], made, __ATOMIC_RELEASE);
    } else {
        free(made);
    }
    pthread_mutex_unlock(&keeping);
}

/* float32 multiply-adds per cycle and multiprocessor: "Throughput of Native Arithmetic
 * Instructions" in NVIDIA's CUDA C++ Programming Guide. The constants were measured on 9.0. */
static const struct {
    int capability[2];
    double multiply_adds;
} data_sheets[] = {
    {{8, 0}, 64},   {{8, 6}, 128},  {{8, 7}, 128},  {{8, 9}, 128},
    {{10, 0}, 128}, {{10, 3}, 128}, {{12, 0}, 128}, {{12, 1}, 128},
};
/* The same of the H100 that the constants were fitted to, and its bytes of memory per cycle and
 * multiprocessor: 3.35 TB/s at 1.98 GHz. */
static const double fitted_multiply_adds = 128, fitted_bytes = 12.8;

bool plan_constants_of_sheet(const GpuFigures *gpu, PlanConstants *constants)
{
    const double cycles = (double)gpu->clock * gpu->multiprocessors;
    const double bytes = 2.0 * gpu->memory_clock * gpu->memory_bus_bits / 8; /* two per clock */
    for (size_t row = 0; row < sizeof data_sheets / sizeof *data_sheets; ++row) {
        if (memcmp(data_sheets[row].capability, gpu->capability, sizeof gpu->capability) == 0 &&
            cycles > 0 && bytes > 0) {
            *constants = plan_fitted;
            constants->from_memory *= bytes / cycles / fitted_bytes;
            for (int i = 0; i < TILE_COUNT; ++i) {
                constants->slots[i] *= fitted_multiply_adds / data_sheets[row].multiply_adds;
            }
            return true;
        }
    }
    return false;
}

const PlanConstants *plan_constants(const char *model)
{
    for (int i = 0; i < MODELS; ++i) {
        const Kept *const entry = __atomic_load_n(&kept[i], __ATOMIC_ACQUIRE);
        if (entry && strcmp(entry->model, model) == 0) {
            return &entry->constants;
        }
    }
    return &plan_fitted;
}
