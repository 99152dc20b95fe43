/* The tile of `direct`, and into how many slices it divides K. */
#ifndef SGEMM_DIRECT_PLAN_H
#define SGEMM_DIRECT_PLAN_H

#include <stddef.h>

#include "../../base/sgemm.h"
#include "constants.h"

typedef struct {
    int tile;   /* of DIRECT_TILES */
    int slices; /* of K, each by a block of a cluster */
    double cycles;
} DirectPlan;

enum {
    DIRECT_MOST_SLICES = 2,     /* more take longer to be launched and added */
    DIRECT_SHORTEST_SLICE = 512 /* steps of K */
};

static inline DirectPlan plan_direct(const Sgemm *p, int multiprocessors)
{
#define TILE(NAME, ROWS, COLS, STAGES, RESIDENT, STAGE) {ROWS, COLS, STAGE},
    static const struct {
        int rows, cols;
        double stage;
    } tiles[] = {DIRECT_TILES(TILE)};
#undef TILE
    DirectPlan best = {0, 1, 0};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i) {
        const int64_t works =
            ceil_div(p->C.rows, tiles[i].rows) * ceil_div(p->C.cols, tiles[i].cols);
        for (int slices = 1; slices <= DIRECT_MOST_SLICES; ++slices) {
            if (slices > 1 &&
                (multiprocessors < slices || p->A.cols < (int64_t)slices * DIRECT_SHORTEST_SLICE)) {
                break;
            }
            const double stages = (double)ceil_div(p->A.cols, (int64_t)slices * 64);
            const double of_work =
                direct_work + tiles[i].stage * stages + (slices > 1 ? direct_adding : 0);
            const double cycles = (double)ceil_div(works, multiprocessors / slices) * of_work;
            if (best.cycles == 0 || cycles < best.cycles) {
                best.tile = (int)i;
                best.slices = slices;
                best.cycles = cycles;
            }
        }
    }
    return best;
}

#endif
