/* The tile of `direct`, and into how many slices it divides K. */
#ifndef SGEMM_DIRECT_PLAN_H
#define SGEMM_DIRECT_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "../../base/sgemm.h"
#include "constants.h"

typedef struct {
    int tile;   /* of DIRECT_TILES */
    int slices; /* of K, each by a block of a cluster */
    double cycles;
} DirectPlan;

enum {
    DIRECT_CLUSTER_THREADS = 1024, /* at most, so that the CPU device can run it */
    DIRECT_SHORTEST_SLICE = 512    /* steps of K */
};

/* How many clusters run at once: the blocks of one are in a group of 16 or more multiprocessors. */
static inline int64_t clusters_at_once(int multiprocessors, int blocks)
{
    const int group = multiprocessors < 16 ? multiprocessors : 16;
    return blocks == 1 ? multiprocessors : (int64_t)(multiprocessors / group) * (group / blocks);
}

#define TILE(NAME, ROWS, COLS, STAGES, PAIR, STAGE) {ROWS, COLS, PAIR, STAGE},
static const struct {
    int rows, cols;
    bool pair;
    double stage; /* cycles of 64 steps of K */
} direct_tiles[] = {DIRECT_TILES(TILE)};
#undef TILE

static inline int direct_most_slices(int tile)
{
    const int threads = 2 * direct_tiles[tile].rows + 128; /* of a block: direct.cu */
    return direct_tiles[tile].pair ? 1 : DIRECT_CLUSTER_THREADS / threads;
}

static inline DirectPlan plan_direct(const Sgemm *p, int multiprocessors)
{
    DirectPlan best = {0, 1, 0};
    for (size_t i = 0; i < sizeof direct_tiles / sizeof *direct_tiles; ++i) {
        const int in_cluster = direct_tiles[i].pair ? 2 : 1;
        const int64_t works = ceil_div(p->C.rows, direct_tiles[i].rows * in_cluster) *
                              ceil_div(p->C.cols, direct_tiles[i].cols);
        const int most_slices = direct_most_slices((int)i);
        for (int slices = 1; slices <= most_slices; ++slices) {
            const int64_t at_once = clusters_at_once(multiprocessors, in_cluster * slices);
            if (at_once < 1 ||
                (slices > 1 && p->A.cols < (int64_t)slices * DIRECT_SHORTEST_SLICE)) {
                break;
            }
            const double stages = (double)ceil_div(p->A.cols, (int64_t)slices * 64);
            const double cycles =
                (double)ceil_div(works, at_once) * (direct_work + direct_tiles[i].stage * stages) +
                (slices > 1 ? direct_adding : 0);
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
