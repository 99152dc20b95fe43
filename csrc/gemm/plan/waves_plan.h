/* The tile that the rung `waves` chooses, and the time of its waves: for its launcher, and for the
 * choice of `auto`. */
#ifndef SGEMM_WAVES_PLAN_H
#define SGEMM_WAVES_PLAN_H

#include <stddef.h>

#include "../../base/sgemm.h"
#include "../kernel/lower_tiles.h"
#include "constants.h"

typedef struct {
    int tile;     /* of WAVES_TILES */
    double waves; /* their time, in waves of the first tile */
} WavesPlan;

/* With `symmetric`, only the lower triangle is computed. */
static inline WavesPlan plan_waves(const Sgemm *p, bool symmetric, int multiprocessors)
{
#define TILE(NAME, ROWS, COLS, STAGES, TIME) {ROWS, COLS, TIME},
    static const struct {
        int rows, cols;
        double time;
    } tiles[] = {WAVES_TILES(TILE)};
#undef TILE
    WavesPlan best = {0, 0};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i) {
        const int64_t blocks = tiles_of_one(p, symmetric, tiles[i].rows, tiles[i].cols) * p->count;
        const double waves = tiles[i].time * (double)ceil_div(blocks, multiprocessors);
        if (i == 0 || waves < best.waves) {
            best.tile = (int)i;
            best.waves = waves;
        }
    }
    return best;
}

#endif
