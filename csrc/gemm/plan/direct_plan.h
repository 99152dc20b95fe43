/* The tile of `direct`, and into how many slices it divides K. */
#ifndef SGEMM_DIRECT_PLAN_H
#define SGEMM_DIRECT_PLAN_H

#include <math.h>
#include <stddef.h>

#include "../../base/sgemm.h"
#include "../kernel/lower_tiles.h"
#include "constants.h"

/* A block computes tiles of C, every `blocks`-th of the first `whole` ones. Then each cluster of
 * `slices` blocks computes one more tile, of which each block has a slice of K. */
typedef struct {
    int tile;         /* of DIRECT_TILES */
    int slices;       /* of K, each by a block of a cluster; 1: all tiles are whole */
    int64_t clusters; /* at least as many as tiles that are not whole */
    int64_t whole;    /* tiles of the batch */
    double cycles;
} DirectPlan;

typedef struct {
    int rows, cols, resident; /* blocks on a multiprocessor */
    double alone, crowded;    /* cycles of a stage of 64 steps of K */
} DirectTileCost;

enum {
    DIRECT_MOST_SLICES = 8,   /* blocks of a cluster that every GPU takes */
    DIRECT_CHUNK = 128,       /* steps of K; slices consist of whole chunks */
    DIRECT_SHORTEST_SLICE = 2 /* in chunks */
};

/* How many clusters certainly run at the same time. A cluster is in one part of the GPU, so larger
 * clusters than pairs leave multiprocessors idle. An H200 runs 30 clusters of four blocks and 15 of
 * eight; other GPUs of the same model may differ a little, and their plans are the same. */
static inline int64_t direct_clusters(int slices, int resident, int multiprocessors)
{
    const int64_t places = (int64_t)multiprocessors * resident;
    return (slices <= 2 ? places : places * 3 / 4) / slices;
}

/* Cycles in which so many blocks compute and store a tile each, at the same time. A stage takes as
 * long as in one block, or as long as all need for what they share, whichever is longer, and a
 * little more where both are similar. */
static inline double direct_round(const DirectTileCost *tile, int64_t blocks, double stages,
                                  int multiprocessors)
{
    const double share = (double)blocks / multiprocessors;
    const double shared = tile->crowded * share;
    return direct_work + stages * pow(pow(tile->alone, 4) + pow(shared, 4), 0.25) +
           direct_store * share * (double)tile->rows * (double)tile->cols;
}

/* Sets the plan's clusters, whole tiles and cycles for its tile and slices. False if too many
 * tiles would be left for the clusters, or if C is symmetric and only some tiles would be in
 * slices: a result and its mirror image need the same order of additions. */
static inline bool direct_divide(const Sgemm *p, const DirectTileCost *tile, int multiprocessors,
                                 DirectPlan *plan)
{
    const int64_t works = tiles_of_one(p, false, tile->rows, tile->cols) * p->count;
    const int64_t clusters = direct_clusters(plan->slices, tile->resident, multiprocessors);
    const int64_t blocks = clusters * plan->slices, rounds = clusters > 0 ? works / blocks : 0;
    const int64_t left = works - rounds * blocks;
    const double stages = (double)ceil_div(p->A.cols, 64);
    plan->cycles = (double)rounds * direct_round(tile, blocks, stages, multiprocessors);
    if (plan->slices == 1) {
        plan->clusters = works < clusters ? works : clusters;
        plan->whole = works;
        plan->cycles += left > 0 ? direct_round(tile, left, stages, multiprocessors) : 0;
        return true;
    }
    plan->clusters = rounds > 0 ? clusters : left;
    plan->whole = rounds * blocks;
    plan->cycles += direct_adding +
                    direct_round(tile, left * plan->slices, stages / plan->slices, multiprocessors);
    return left > 0 && left <= clusters && (rounds == 0 || !sgemm_is_symmetric(p));
}

static inline DirectPlan plan_direct(const Sgemm *p, int multiprocessors)
{
#define TILE(NAME, ROWS, COLS, STAGES, RESIDENT, ALONE, CROWDED)                                   \
    {ROWS, COLS, RESIDENT, ALONE, CROWDED},
    static const DirectTileCost tiles[] = {DIRECT_TILES(TILE)};
#undef TILE
    const int64_t by_depth = ceil_div(p->A.cols, DIRECT_CHUNK) / DIRECT_SHORTEST_SLICE;
    const double certainly = 0.98; /* estimates differ more by chance */
    DirectPlan best = {0, 1, 0, 0, 0};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i) {
        for (int slices = 1; slices == 1 || (slices <= DIRECT_MOST_SLICES && slices <= by_depth);
             ++slices) {
            DirectPlan plan = {(int)i, slices, 0, 0, 0};
            if (direct_divide(p, &tiles[i], multiprocessors, &plan) &&
                (best.clusters == 0 || plan.cycles < certainly * best.cycles)) {
                best = plan;
            }
        }
    }
    return best;
}

#endif
