#include "plan.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int BM, BN, BK;
    double results, depth; /* of a tile; BK */
    double work;           /* results of a thread */
    int warps;             /* of a block, */
    int widest;            /* of which a cluster has so many at most */
    int slices;
    double share; /* of a step of K that each slice has */
    int stages;
    int resident;
    double held;                     /* warps that each scheduler has then */
    bool in_step;                    /* whether these wait for the same, see `estimate` */
    double slots, cycles;            /* of a slice's share of a step of K, see plan.h */
    double a_floats, b_floats;       /* of a step of K, that a thread copies */
    double per_A[2], per_B[2];       /* 1 / BM and 1 / BN, and 1 / BK where lines lie along it */
    double lines_down, lines_across; /* LINES of a warp's results */
    double joined_lines,
        joined_quads;   /* what a joined result takes over what one of a tile of 32 columns does */
    double storing;     /* what a thread's results take, over what one of others takes, */
    double storing_all; /* and all of a tile's, each slice's, over what as many others' take */
    double least; /* issue slots of all warps for a step of K, for each result of a whole tile */
    bool joins, large; /* see plan.h */
} Tiling;

#define WARPS(BM, BN, WM, WN, SLICES) ((BM) / (WM) * ((BN) / (WN)) * (SLICES))
/* Of so many floats side by side that begin anywhere, stores touch (FLOATS + 31) / 32 lines of 128 bytes in the mean:
 * so many times as many as they fill. */
#define LINES(FLOATS) (((FLOATS) + 31.0) / (FLOATS))
/* Blocks of so many threads that a cluster has at most. */
#define WIDEST(THREADS)                                                                            \
    ((THREADS)*8 <= CLUSTER_MOST_THREADS   ? 8                                                     \
     : (THREADS)*4 <= CLUSTER_MOST_THREADS ? 4                                                     \
     : (THREADS)*2 <= CLUSTER_MOST_THREADS ? 2                                                     \
                                           : 1)
#define TILING(BM, BN, BK, WM, WN, TM, TN, SLICES, STAGES, RESIDENT, SLOTS, CYCLES, STORING)       \
    {BM,                                                                                           \
     BN,                                                                                           \
     BK,                                                                                           \
     (BM) * (BN),                                                                                  \
     BK,                                                                                           \
     (TM) * (TN),                                                                                  \
     WARPS(BM, BN, WM, WN, SLICES),                                                                \
     WIDEST(32 * WARPS(BM, BN, WM, WN, SLICES)),                                                   \
     SLICES,                                                                                       \
     1.0 / (SLICES),                                                                               \
     STAGES,                                                                                       \
     RESIDENT,                                                                                     \
     (RESIDENT)*WARPS(BM, BN, WM, WN, SLICES) / 4.0,                                               \
     (RESIDENT) <= 2 || (RESIDENT)*WARPS(BM, BN, WM, WN, SLICES) < 8,                              \
     1.0 * (SLOTS) / (SLICES),                                                                     \
     1.0 * (CYCLES) / (SLICES),                                                                    \
     (BM) / (32.0 * WARPS(BM, BN, WM, WN, SLICES)),                                                \
     (BN) / (32.0 * WARPS(BM, BN, WM, WN, SLICES)),                                                \
     {1.0 / (BM), 1.0 / (BK)},                                                                     \
     {1.0 / (BN), 1.0 / (BK)},                                                                     \
     LINES(WM),                                                                                    \
     LINES(WN),                                                                                    \
     (32 + (BN)) / 64.0,                                                                           \
     (32 + (BN)) / (2.0 * (BN)),                                                                   \
     (STORING) / 100.0 * ((TM) * (TN)),                                                            \
     (STORING) / 100.0 * (SLICES),                                                                 \
     (double)(SLOTS)*WARPS(BM, BN, WM, WN, 1) / ((BM) * (BN)),                                     \
     JOINS(BM, BN, BK, STAGES, SLICES),                                                            \
     NEEDS_LARGE_BLOCKS(BM, BN, BK, STAGES)},
static const Tiling tilings[] = {TILINGS(TILING)};
#undef TILING
#define CONSTANT(name, value) value,
const PlanConstants plan_fitted = {PLAN_CONSTANTS(CONSTANT)};
#undef CONSTANT

/* Tiles of K that are few: see `estimate`. */
static const double few_steps = 8;

/* What each block has of what a cluster of so many has. */
static const double of_cluster[CLUSTER_MOST_BLOCKS + 1] = {0, 1, 1.0 / 2, 0,      1.0 / 4,
                                                           0, 0, 0,       1.0 / 8};

/* Steps of K that take as long as it takes streamk to write a part of a tile, or to add it. */
static const double part_depth = 16;

/* How much longer its steps take than issue slots alone. */
static const double stream_waiting = 1.075;

/* What steps of the first take where TMA brings the tiles, 32 deep, over what they take where it does not; and what
 * it takes to turn a float of a tile, over what it takes to copy one along the depth. A GPU without TMA is
 * taken for one that has it. */
static const double by_tma = 0.965, turning = 0.68;

enum { MODELS = 16 };
/* Neither changed nor freed once it is there, since other threads plan with it without a lock. */
typedef struct Kept {
    char model[256];
    PlanConstants constants;
    const struct Kept *before; /* which this one replaces */
} Kept;
static const Kept *kept[MODELS];
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

void plan_keep(const char *model, const PlanConstants *constants)
{
    Kept *const made = calloc(1, sizeof *made);
    if (!made) {
        return; /* plans are then estimated as before, which changes no result */
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

/* What tensor cores take with operands in halves, in the same units: such figures as come nearest, by
 * least squares of logarithms, to what `auto` took with them on an H200 at 28 random shapes, of which most
 * have no aligned lines, and `waves` at squares of 256 to 16384 and one shape more. Of these they are off
 * by 4 % in the median, by 10 % at most in four of five. */
enum { HALVES_TILE = 128, HALVES_DEPTH = 64 }; /* lines and depth are filled up to whole ones */
static const double halves_lanes = 565;        /* multiply-adds of float32 a cycle */
static const double halves_start = 19000;      /* several kernels, of which each begins and ends */
static const double splitting = 12.0 / 1330;   /* bytes of an element, by bytes a cycle */
static const double by_quads = 1.15, one_by_one = 1.69; /* for a result: certified, and stored */

/* By 32 bits where they suffice, which takes a processor a fraction of the time. */
static int64_t divide(int64_t count, int64_t by)
{
    return count <= UINT32_MAX ? (int64_t)((uint32_t)count / (uint32_t)by) : count / by;
}

static int64_t ceil_div(int64_t count, int64_t by)
{
    return divide(count + by - 1, by);
}

static double squared(double value)
{
    return value * value;
}

static double at_least(double value, double least)
{
    return value > least ? value : least;
}

static double at_most(double value, double most)
{
    return value < most ? value : most;
}

static Matrix turned(const Matrix *X)
{
    return (Matrix){X->data, X->cols, X->rows, X->col_stride, X->row_stride};
}

/* Whether it begins at a quad; an operand without data does. */
static bool aligned(const Matrix *X)
{
    return (uintptr_t)X->data % (4 * sizeof(float)) == 0;
}

/* Whether each of its rows begins at a quad, and the last ends with one, or they are read as one: as in
 * engine/gemv.h. */
static bool begin_at_quads(const Matrix *X)
{
    return aligned(X) && X->cols % 4 == 0 && (X->row_stride % 4 == 0 || X->rows == 1);
}

/* What a copy of an operand's tile takes for each float, in issue slots, by how its neighbours lie. */
static double slots_of_copy(const Matrix *lines, const PlanConstants *c)
{
    /* As TileLoader in tile_loader.h has it. */
    if (lines->col_stride == 1) {
        return c->along;
    }
    return lines->col_stride % 4 == 0 && aligned(lines) ? 0 : c->across;
}

/* Whether TMA brings the tiles, as launch_by_tma in kernels/13_tma.cu has it. */
static bool has_boxes(const Matrix *X)
{
    const int64_t pitch = X->col_stride == 1 ? X->row_stride : X->col_stride;
    return aligned(X) && pitch > 0 && pitch % 4 == 0;
}

static bool brought_by_tma(const Sgemm *p, bool copies_A, bool copies_B)
{
    return (copies_A || has_boxes(&p->A)) && (copies_B || has_boxes(&p->B)) &&
           (copies_A || copies_B || p->A.col_stride != 1 || p->B.row_stride != 1);
}

/* The shape of a product as a tiling sees it. */
typedef struct {
    int64_t M, N, K;
    double a_copy, b_copy; /* issue slots for each float */
    bool swapped;
    bool by_tma;     /* tiles are brought */
    bool by_quads;   /* C is stored by quads */
    double before;   /* cycles until anything is computed: launch, copies; */
    double memory;   /* for memory's traffic, beside what is computed, at the least; */
    double a_wasted; /* for what comes beside an operand's pieces, if each had one float; */
    double b_wasted;
    bool a_along, b_along; /* whether these lie along its lines; */
    double of_part;        /* for a part of K, written and read; */
    double of_slot;        /* for an issue slot, of which all multiprocessors take their share; */
    double of_depth;       /* and for one of each step of K */
    int multiprocessors;
    const PlanConstants *c;
} Shape;

/* As store_thread_tile in store_tile.h has it. */
static bool stored_by_quads(const Sgemm *p)
{
    return p->beta == 0 && p->C.cols % 4 == 0 && p->C.row_stride % 4 == 0 && aligned(&p->C);
}

static double cycles_of_copy(const Matrix *X, double memory, const PlanConstants *c)
{
    return c->copying + 8 * (double)X->rows * (double)X->cols * memory;
}

static Shape shape_of(const Sgemm *p, const Plan *plan, int multiprocessors, const PlanConstants *c)
{
    const Matrix columns = turned(&p->B);
    const double a = plan->copies_A ? 0 : slots_of_copy(&p->A, c);
    const double b = plan->copies_B ? 0 : slots_of_copy(&columns, c);
    const double M = (double)p->C.rows, N = (double)p->C.cols, K = (double)p->A.cols;
    const double memory = 1 / (c->from_memory * multiprocessors);
    const bool along_A = !plan->copies_A && p->A.col_stride == 1;
    const bool along_B = !plan->copies_B && p->B.row_stride == 1;
    const double A_wasted = 4 * M * K * memory * (along_A ? c->wasted_along : c->wasted_across);
    const double B_wasted = 4 * K * N * memory * (along_B ? c->wasted_along : c->wasted_across);
    const bool swapped = plan->swapped;
    return (Shape){
        .M = swapped ? p->C.cols : p->C.rows,
        .N = swapped ? p->C.rows : p->C.cols,
        .K = p->A.cols,
        .a_copy = swapped ? b : a,
        .b_copy = swapped ? a : b,
        .swapped = swapped,
        .by_tma = brought_by_tma(p, plan->copies_A, plan->copies_B),
        .by_quads = stored_by_quads(p),
        .before = c->launch + (plan->copies_A ? cycles_of_copy(&p->A, memory, c) : 0) +
                  (plan->copies_B ? cycles_of_copy(&p->B, memory, c) : 0),
        .memory = 4 * (M * K + K * N + M * N) * memory,
        .a_wasted = swapped ? B_wasted : A_wasted,
        .b_wasted = swapped ? A_wasted : B_wasted,
        .a_along = swapped ? along_B : along_A,
        .b_along = swapped ? along_A : along_B,
        .of_part = 4 * M * N / (c->of_parts * multiprocessors),
        .of_slot = 0.25 / multiprocessors,
        .of_depth = 0.25 * K / multiprocessors,
        .multiprocessors = multiprocessors,
        .c = c,
    };
}

/* A tiling of a shape. */
typedef struct {
    const Tiling *t;
    int64_t tiles, steps; /* of C; of K, BK deep */
    double work;          /* cycles for all issue slots but those that store, evenly divided; */
    double copies;        /* issue slots of a warp for its copies of one k; */
    double memory;        /* cycles for memory's traffic; */
    double squares;       /* of memory and work, their sum; */
    /* cycles of a block alone for one of these steps, with one stage but for the arithmetic, and for all */
    double of_step, all_steps;
} Tiled;

/* Issue slots for a result that a warp stores to C. */
static double slots_of_stored(const Shape *s, bool by_quads, double lines)
{
    return by_quads ? s->c->quad / 4 : s->c->store * lines;
}

/* For a result that a warp stores itself. Down a tile lie those of a transposed C, as
 * single_stage in auto.cu stores it. */
static double slots_of_own(const Tiling *t, const Shape *s)
{
    return slots_of_stored(s, s->by_quads,
                           s->swapped && t->stages == 1 ? t->lines_down : t->lines_across);
}

/* For one that so many blocks' warps and slices hand on, add and store, or where there are several such clusters
 * leave for another to add, which they do by quads. By measured times floats take the longer the wider a tile is, as
 * a thread has the more of them; and quads the longer the narrower it is, as then few threads have any. */
static inline double slots_of_joined(const Tiling *t, const Shape *s, int64_t clusters, int cluster)
{
    const PlanConstants *const c = s->c;
    const double stored = clusters > 1  ? c->quad / 4
                          : s->swapped  ? c->joined_columns
                          : s->by_quads ? c->joined_quads * t->joined_quads
                                        : c->joined_lines * t->joined_lines;
    return stored * t->share * of_cluster[cluster] + c->exchange;
}

/* What a warp takes at the least for its part of joined results. */
static double slots_of_exchange(const Tiling *t, const Shape *s)
{
    return t->storing * s->c->exchange;
}

static int64_t tiles_of(const Tiling *t, const Shape *s)
{
    return ceil_div(s->M, t->BM) * ceil_div(s->N, t->BN);
}

static double copies_of(const Tiling *t, const Shape *s)
{
    return t->a_floats * s->a_copy + t->b_floats * s->b_copy;
}

/* Cycles for memory's traffic, with what comes beside the pieces of lines that tiles are read by; the same for a
 * transpose, to the last bit, where nothing else differs. */
static double memory_of(const Tiling *t, const Shape *s)
{
    const double of_a = s->a_wasted * t->per_A[s->a_along];
    const double of_b = s->b_wasted * t->per_B[s->b_along];
    return s->memory + (of_a + of_b);
}

static inline Tiled tiled_by(const Tiling *t, const Shape *s)
{
    const double copies = copies_of(t, s);
    const int64_t tiles = tiles_of(t, s);
    const int64_t steps = ceil_div(s->K, t->BK);
    const double wait = s->c->wait, copying = t->depth * copies;
    const double of_step =
        t->stages > 1 ? at_least(t->depth * t->cycles + copying, wait) : copying + wait;
    const double work = (double)(tiles * t->warps) * s->of_depth * (t->slots + copies);
    const double memory = memory_of(t, s);
    return (Tiled){
        .t = t,
        .tiles = tiles,
        .steps = steps,
        .work = work,
        .copies = copies,
        .memory = memory,
        .squares = squared(memory) + squared(work),
        .of_step = of_step,
        .all_steps = (double)steps * of_step,
    };
}

enum { ADDED_AT_ONCE = 8 };

int plan_group(int64_t parts)
{
    if (parts <= ADDED_AT_ONCE) {
        return 1;
    }
    const int root = (int)sqrt((double)parts);
    return root + ((int64_t)root * root < parts);
}

/* Cycles until the last block to arrive can add what so many clusters have left. */
static double until_arrived(const Shape *s, int64_t clusters)
{
    return s->c->arriving + s->of_part * (double)(clusters + 1);
}

/* Cycles until the last block to arrive has added what so many have left, which of each is so many results. */
static double collecting(const PlanConstants *c, int64_t parts, double of_block)
{
    return 4 * of_block * (double)parts / c->collecting;
}

/* The same by groups. */
static double collecting_groups(const PlanConstants *c, int64_t parts, double of_block)
{
    const int group = plan_group(parts);
    return group == 1 ? collecting(c, parts, of_block)
                      : c->again + collecting(c, group + ceil_div(parts, group), of_block);
}

/* Cycles from when the first of several clusters is done until the last has added what all have left. */
static double of_clusters(const Tiling *t, const Shape *s, int64_t clusters, int cluster)
{
    const double of_block = t->results * of_cluster[cluster];
    return until_arrived(s, clusters) + (cluster > 1 ? s->c->pairing : 0) +
           (s->swapped ? 0 : s->c->scattered * of_block) +
           collecting_groups(s->c, clusters, of_block);
}

/* Among how many multiprocessors the blocks of clusters are spread evenly, measured on an H200. A cluster lies in
 * one group of them, of which each has some left over. */
static int room_for_clusters(int64_t blocks, int multiprocessors)
{
    return blocks > 2 && multiprocessors > 1 ? multiprocessors * 15 / 16 : multiprocessors;
}

/* How many times as long a multiprocessor is busy where clusters are of so many blocks: each ends with the slowest of
 * them. */
static double widened(const PlanConstants *c, int cluster)
{
    return 1 + c->widening * (cluster > 4 ? 2 : cluster > 2 ? 1 : 0);
}

/* Cycles for memory's traffic and for what multiprocessors do meanwhile. */
static inline double beside_memory(double memory, double busy, const PlanConstants *c)
{
    return sqrt(memory * memory + busy * busy + 2 * c->adding_up * memory * busy);
}

/* Cycles from the first launch to the last result, where so many clusters have a tile, each of so many blocks, or of
 * none: then these are blocks. Or more than `limit`, if they are more. Inline, as most callers have clusters of one
 * kind, and of all that is done to choose a plan this takes the most time. */
__attribute__((always_inline)) static inline double
estimate(const Tiled *tiled, const Shape *s, int64_t clusters, int cluster, double limit)
{
    const Tiling *const t = tiled->t;
    const PlanConstants *const c = s->c;
    const int64_t parts = clusters * (cluster > 0 ? cluster : 1);
    const double steps = (double)ceil_div(tiled->steps, parts);
    const double of_result = /* issue slots */
        cluster == 0 ? slots_of_own(t, s) : slots_of_joined(t, s, clusters, cluster);
    const double stored = t->storing * of_result;
    const double copied = steps * t->depth;
    double depth = copied;   /* multiplied */
    double beside = c->wait; /* what `of_step` does not have: until the first step is there, */
    if (t->stages == 1) {
        depth = at_most(copied, (double)s->K);
        beside = depth * t->cycles; /* or the arithmetic */
    }

    /* A block alone, and so many at once: each tile is there before it is multiplied. Neither bound is
     * reached where they are near each other. Some warps of the last blocks share one of four
     * schedulers where others have one to themselves. */
    const double alone = stored + beside + steps * tiled->of_step;
    const double after = (cluster > 1 ? c->joining : 0) +
                         (cluster > 0 && clusters > 1 ? of_clusters(t, s, clusters, cluster) : 0);
    /* All waves take no less than their work and one block alone. */
    const double left = limit - s->before - after;
    if (tiled->squares + alone * alone > left * fabs(left)) {
        return HUGE_VAL;
    }
    const double of_warp = depth * t->slots + copied * tiled->copies + stored;
    const int64_t of_each =
        ceil_div(tiled->tiles * parts, room_for_clusters(cluster, s->multiprocessors));
    const int64_t waves =
        of_each > t->resident ? ceil_div(of_each, t->resident) - 1 : 0; /* before the last */
    /* Two blocks of a multiprocessor end at once, and so do three where K has few tiles: whichever are the first to end
     * take one more of the last blocks than others. Of more, small ones, each wave is less in step than the one before, and
     * what a block waits for falls to when others multiply. */
    const bool uneven = t->resident == 2 || (t->resident == 3 && steps <= few_steps);
    const int64_t evenly = of_each - waves * t->resident;
    const int64_t rest = waves > 0 && uneven && evenly < t->resident ? evenly + 1 : evenly;
    double before_last = 0;
    if (waves > 0) {
        const double full = (double)waves * of_warp * t->held;
        const double waits = (t->in_step ? (double)waves : sqrt((double)waves)) * alone;
        before_last = sqrt(full * full + waits * waits);
    }
    const double last = of_warp * (double)ceil_div(rest * t->warps, 4);
    const double drained = (double)(waves + 1) * 4 * t->results / c->draining;
    const double busy =
        (before_last + sqrt(last * last + alone * alone) + drained) * widened(c, cluster);
    return s->before + beside_memory(tiled->memory, busy, c) + after;
}

StreamPlan plan_stream(int64_t tiles, int64_t steps, int places, int depth)
{
    const double part = part_depth / depth;
    const int64_t full = divide(tiles, places), whole_waves = full > 0 ? full - 1 : 0;
    const int64_t whole = whole_waves * places;
    const int64_t streamed = tiles - whole;
    /* Where there are fewer tiles than places, p parts of a tile take steps / p + p * part, the least
     * where p is the square root of steps / part. */
    const int64_t most = streamed * (int64_t)sqrt((double)steps / part);
    const int64_t shares = most < places ? most : places;
    const double before = (double)(whole_waves * steps);
    const double waves = (double)(ceil_div(streamed, places) * steps);
    if (shares == 0 || tiles == full * places) {
        return (StreamPlan){tiles, 0, 0, before + waves};
    }
    const double longest = (double)ceil_div(streamed * steps, shares);
    const int64_t parts = ceil_div(shares, streamed) + 1;
    return longest + part * (double)(1 + parts) < waves
               ? (StreamPlan){whole, shares, parts, before + longest}
               : (StreamPlan){tiles, 0, 0, before + waves};
}

/* The same for streamk. */
static double estimate_stream(const Shape *s)
{
    const Tiled tiled = tiled_by(&tilings[0], s);
    const Tiling *const t = tiled.t;
    const int places = s->multiprocessors;
    const StreamPlan by = plan_stream(tiled.tiles, tiled.steps, places, t->BK);
    const double warps = t->warps / 4.0; /* of a scheduler */
    const bool brought = s->by_tma;
    const double copies = tiled.copies * (brought ? turning : 1);
    const double waiting = stream_waiting * (brought ? by_tma : 1);
    const double of_step =
        t->BK * at_least((t->slots + copies) * warps * waiting, t->cycles + copies);
    const double busy = by.steps * of_step;
    const double of_result =
        slots_of_stored(s, s->by_quads, s->swapped ? t->lines_down : t->lines_across);
    double shared = 0;
    if (by.shares > 0) {
        shared =
            s->c->stream_shared + 4 * t->results * (double)(by.parts + 1) / s->c->stream_adding;
    }
    return s->before + beside_memory(tiled.memory, busy, s->c) +
           (double)ceil_div(tiled.tiles, places) *
               (s->c->stream_tile + t->work * of_result * warps) +
           shared;
}

/* Puts a plan in the place of another if it takes less time. */
static void keep_better(Plan *best, const Plan *plan)
{
    if (plan->cycles < best->cycles) {
        *best = *plan;
    }
}

/* Whether a plan takes as long as the best one at least: `squares` is of its cycles of memory's traffic and of work,
 * of which one block alone takes so many, and the rest, beside what comes before, takes `more`. */
static bool takes_as_long(const Plan *best, const Shape *s, double squares, double alone,
                          double more)
{
    const double left = best->cycles - s->before - more;
    return squares + alone * alone >= left * fabs(left); /* below 0 there is nothing left */
}

/* The same for the best of those in which several blocks or warps join their parts of a tile; or only of those in
 * which several clusters do. */
static void improve_joined(Plan *best, Plan plan, const Tiled *tiled, const Shape *s, bool clusters,
                           bool only_several)
{
    const Tiling *const t = tiled->t;
    const double exchanged = slots_of_exchange(t, s);
    const double work = tiled->work + (double)(tiled->tiles * t->warps) * s->of_slot * exchanged;
    const double squares = squared(tiled->memory) + squared(work);
    if (takes_as_long(best, s, squares, 0, 0)) {
        return;
    }
    /* One block alone is a cluster where it has slices to add, or a transposed C to store. */
    const int fewest = !only_several && (t->slices > 1 || (plan.swapped && t->stages > 1)) ? 1 : 2;
    const int64_t places = (int64_t)t->resident * s->multiprocessors;
    if (fewest > 1 && places < 2 * tiled->tiles) {
        return;
    }
    const int64_t most = divide(s->K, t->BK) / 2; /* parts */
    const int64_t room = divide(places, tiled->tiles);
    const int64_t fitting = most < room ? most : room;
    if (fewest > 1 && fitting < 2) {
        return;
    }
    int widest = clusters && !only_several ? t->widest : 1;
    while (widest > 1 && widest > fitting) {
        widest /= 2;
    }

    /* Few parts may be one cluster: from the most on, until fewer take longer. One block alone has nothing to join. */
    double more = HUGE_VAL;
    for (plan.cluster = widest; plan.cluster > 1; plan.cluster /= 2) {
        if (takes_as_long(best, s, squares, exchanged + tiled->all_steps * of_cluster[plan.cluster],
                          s->c->joining)) {
            break;
        }
        plan.splits = plan.cluster;
        plan.cycles = estimate(tiled, s, 1, plan.cluster, best->cycles);
        keep_better(best, &plan);
        if (plan.cycles > more || plan.cycles == HUGE_VAL) {
            break;
        }
        more = plan.cycles;
    }
    if (fewest == 1 && !takes_as_long(best, s, squares, exchanged + tiled->all_steps, 0)) {
        plan.cluster = plan.splits = 1;
        plan.cycles = estimate(tiled, s, 1, 1, best->cycles);
        keep_better(best, &plan);
    }

    /* As many parts as make so many blocks for each multiprocessor, up to those that it has room for, in as many
     * clusters, until more take longer; and the best of these in clusters of two. */
    if (fitting < 2 ||
        takes_as_long(best, s, squares, exchanged + tiled->all_steps / (double)fitting,
                      until_arrived(s, 2))) {
        return;
    }
    const int64_t filling = most * tiled->tiles; /* blocks */
    int64_t blocks = 0, paired = 0;
    double least = HUGE_VAL;
    for (int each = 1; each <= t->resident && each <= 6 && blocks < filling;
         each += each < 2 ? 1 : 2) {
        blocks = (int64_t)each * s->multiprocessors;
        const int64_t splits = blocks < filling ? divide(blocks, tiled->tiles) : most;
        if (splits < 2) {
            continue;
        }
        if (takes_as_long(best, s, squares, exchanged + tiled->all_steps / (double)splits,
                          of_clusters(t, s, splits, 1))) {
            continue;
        }
        plan.cluster = 1;
        plan.splits = (int)splits;
        plan.cycles = estimate(tiled, s, splits, 1, best->cycles);
        keep_better(best, &plan);
        if (plan.cycles > least) {
            break;
        }
        if (plan.cycles < least) {
            least = plan.cycles;
            paired = clusters && splits >= 4 ? splits / 2 : 0;
        }
    }
    if (paired > 0) {
        plan.cluster = 2;
        plan.splits = (int)paired * 2;
        plan.cycles = estimate(tiled, s, paired, 2, best->cycles);
        keep_better(best, &plan);
    }
}

/* Whether a tiling of C takes as long at least as of its transpose, for which it was tried, but for several clusters
 * of a tile: with no fewer tiles, nor cheaper copies, nor cheaper results, nor less of memory's traffic. A division of
 * K that was not tried there is not tried here either. */
static bool gains_nothing(const Tiled *tiled, const Shape *s, const Shape *tried)
{
    const Tiling *const t = tiled->t;
    const int64_t tiles = tiles_of(t, tried);
    const double copies = copies_of(t, tried);
    const double own = slots_of_own(t, tried), joined = slots_of_joined(t, s, 1, 1);
    return tiled->tiles >= tiles && tiled->copies >= copies &&
           tiled->memory >= memory_of(t, tried) && slots_of_own(t, s) >= own &&
           (joined >= own || t->slices > 1) && joined >= slots_of_joined(t, tried, 1, 1);
}

/* The same for the best of all with tiles: `plan` says whether C is swapped and what is copied, and `s` is the shape
 * then. `tried` is the transpose's if this was done for it, else NULL. */
static void improve(Plan *best, Plan plan, const Shape *s, const Shape *tried, bool clusters)
{
    plan.width = 0;
    plan.cluster = 0;
    plan.splits = 1;
    /* Cycles at the least: for each issue slot of a step of K and a result, and for results, each of which one of a
     * warp's 32 threads stores, or hands on. */
    const double results = (double)s->M * (double)s->N, of_steps = results * s->of_depth;
    const double of_result = at_most(s->by_quads ? s->c->quad / 4 : s->c->store, s->c->exchange);
    const double of_results = results * s->of_slot * of_result / 32;
    const double of_memory = squared(s->memory);
    const double of_all = of_steps * tilings[0].least;
    if (!plan.swapped &&
        !takes_as_long(best, s, of_memory + squared(of_all), 0, s->c->stream_tile)) {
        plan.tiling = STREAMK;
        plan.cycles = estimate_stream(s);
        keep_better(best, &plan);
    }
    /* Most of the first ones are the largest, and need no estimate where others are better. */
    for (plan.tiling = TILING_COUNT - 1; plan.tiling >= 0; --plan.tiling) {
        const Tiling *const t = &tilings[plan.tiling];
        if (plan.tiling > 0 && t->BM > 8 * s->M) {
            continue; /* most of it would lie beyond C; no such case was fitted */
        }
        const double storing = of_results * t->storing_all;
        if (takes_as_long(best, s, of_memory + squared(of_steps * t->least + storing), 0, 0)) {
            continue; /* if all tiles were whole, and nothing had to be copied */
        }
        const Tiled tiled = tiled_by(t, s);
        const double squares = squared(tiled.memory) + squared(tiled.work + storing);
        if (takes_as_long(best, s, squares, 0, 0)) {
            continue; /* however K is divided */
        }
        /* Several clusters of a tile store a transposed C in a little less time: of the best, that is tried. */
        const bool only_several = tried && gains_nothing(&tiled, s, tried);
        if (only_several && (plan.tiling != best->tiling || best->splits <= best->cluster)) {
            continue;
        }
        if (!only_several && t->slices == 1 && (!plan.swapped || t->stages == 1) &&
            !takes_as_long(best, s, squares, tiled.all_steps, 0)) {
            plan.cycles = estimate(&tiled, s, 1, 0, best->cycles);
            keep_better(best, &plan);
        }
        /* GPUs with clusters have large blocks as well. */
        if (t->joins && (clusters || !t->large)) {
            improve_joined(best, plan, &tiled, s, clusters, only_several);
        }
    }
}

/* What a plan with tiles takes. */
static double cycles_of(const Plan *plan, const Shape *s)
{
    if (plan->tiling >= TILING_COUNT) {
        return estimate_stream(s);
    }
    const Tiled tiled = tiled_by(&tilings[plan->tiling], s);
    return estimate(&tiled, s, plan->cluster > 0 ? divide(plan->splits, plan->cluster) : 1,
                    plan->cluster, HUGE_VAL);
}

/* The same where it takes little more at most if just that is copied: else no other tiling gains by it either, nearly
 * always. */
static void improve_by_copy(Plan *best, Plan plan, const Sgemm *problem, int multiprocessors,
                            bool clusters, const PlanConstants *c)
{
    const Shape s = shape_of(problem, &plan, multiprocessors, c);
    const bool has_tiles = plan.tiling != GEMV && plan.tiling != DIRECT;
    if (has_tiles && cycles_of(&plan, &s) > 1.02 * best->cycles) {
        return;
    }
    improve(best, plan, &s, NULL, clusters);
}

/* Cycles until each element of the operands has been read from memory once. */
static double streamed(const Sgemm *p, int multiprocessors, const PlanConstants *c)
{
    const double M = (double)p->C.rows, N = (double)p->C.cols, K = (double)p->A.cols;
    return 4 * (M * K + K * N + M * N) / (c->streaming * multiprocessors);
}

static double estimate_direct(const Sgemm *p, int multiprocessors, const PlanConstants *c)
{
    const int64_t most = 1 << 24; /* of what it counts by 32 bits */
    if (p->A.cols > most || p->C.rows > most || p->C.cols > most || p->C.rows * p->C.cols > most) {
        return HUGE_VAL;
    }
    const int sharers = DIRECT_SHARERS(p->C.rows * p->C.cols, p->A.cols);
    const double threads = (double)p->C.rows * (double)p->C.cols * sharers / multiprocessors;
    const double rounds = (double)ceil_div(p->A.cols, DIRECT_AT_ONCE * sharers);
    const double busy = threads * (c->direct_thread + c->direct_steps * rounds);
    const double memory = streamed(p, multiprocessors, c);
    return c->direct_launch + c->direct_round * rounds + sqrt(memory * memory + busy * busy);
}

/* By matrix-vector products, of rows of C or of its columns. */
static Plan plan_gemv(const Sgemm *p, bool swapped, int multiprocessors, const PlanConstants *c)
{
    const Matrix A = swapped ? turned(&p->B) : p->A, B = swapped ? turned(&p->A) : p->B;
    const int64_t rows = A.rows, cols = B.cols, K = A.cols;
    const int of_block = rows > 4 ? GEMV_ROWS : rows > 2 ? 4 : (int)rows;
    const int64_t groups = ceil_div(rows, of_block);
    const bool by_rows = B.row_stride != 1, staged = !by_rows && A.col_stride != 1;
    const Matrix columns = turned(&B);
    const bool quads = !by_rows && !staged && begin_at_quads(&A) && begin_at_quads(&columns);
    const int64_t room =
        multiprocessors * (quads ? GEMV_RESIDENT_BY_QUADS(of_block) : GEMV_RESIDENT(of_block));
    const int deep = GEMV_DEEP(of_block, staged), apart = by_rows ? 1 : GEMV_APART(B.col_stride);
    const int singly = by_rows           ? B.row_stride % 4 != 0 || !aligned(&B)
                       : staged || quads ? 0
                                         : of_block;
    const double memory = streamed(p, multiprocessors, c);
    const double filling = c->gemv_filling / multiprocessors;
    const double of_rows = c->gemv_round + of_block * c->gemv_row + deep * singly * c->gemv_single;
    const double unshared =
        by_rows ? of_block * deep * (A.col_stride == 1 ? c->gemv_unshared : c->gemv_scattered) : 0;
    Plan best = {.cycles = HUGE_VAL};
    const int most = by_rows ? GEMV_WIDEST_BY_ROWS(of_block) : GEMV_WIDEST_BY_COLUMNS;
    for (int width = by_rows ? 4 : 1; width <= most; width *= 2) {
        const int64_t strips = divide(cols, width * apart);
        const int64_t left = cols - strips * width * apart;
        const int64_t blocks = (strips * apart + (left < apart ? left : apart)) * groups;
        const int64_t loaded = (4 * deep << GEMV_THREAD_BITS) / width; /* at once */
        const int64_t depth =
            staged && loaded > GEMV_STAGED(of_block) ? GEMV_STAGED(of_block) : loaded;
        const int64_t whole = divide(K, depth), fitting = divide(room, blocks);
        const int64_t most_splits = whole < fitting ? whole : fitting;
        const double round = of_rows + unshared / width;
        const double of_step = staged ? of_block * (c->gemv_factor + width * c->gemv_product) : 0;
        const double read =
            by_rows && width < cols ? memory * (1 + c->gemv_wasted / width) : memory;
        /* K in one part, or in as many as there is room for. */
        for (int64_t splits = 1; splits > 0; splits = splits < most_splits ? most_splits : 0) {
            const int64_t steps = ceil_div(K, splits);
            const int64_t all = blocks * splits;
            const double at_once = (double)(all < room ? all : room) * filling;
            const double waits = (double)ceil_div(all, room) *
                                     (c->gemv_block + (double)ceil_div(steps, depth) * round +
                                      (double)steps * of_step) +
                                 at_once;
            const double cycles =
                c->gemv_launch + sqrt(waits * waits + read * read) +
                (splits > 1 ? c->gemv_arriving + collecting(c, splits, of_block * width) : 0);
            if (cycles <= best.cycles) {
                best = (Plan){.tiling = GEMV,
                              .splits = (int)splits,
                              .swapped = swapped,
                              .width = width,
                              .cycles = cycles};
            }
        }
    }
    return best;
}

Plan plan_any(const Sgemm *problem, int multiprocessors, bool clusters, const PlanConstants *c)
{
    Plan best = {
        .tiling = DIRECT, .splits = 1, .cycles = estimate_direct(problem, multiprocessors, c)};
    for (int swapped = 0; swapped < 2; ++swapped) {
        if ((swapped ? problem->C.cols : problem->C.rows) <= GEMV_MOST_ROWS) {
            const Plan gemv = plan_gemv(problem, swapped, multiprocessors, c);
            keep_better(&best, &gemv);
        }
    }
    if (problem->C.rows == 1 || problem->C.cols == 1) {
        return best; /* to share there is nothing */
    }
    Plan plan = {.swapped = false};
    const Shape as_it_lies = shape_of(problem, &plan, multiprocessors, c);
    improve(&best, plan, &as_it_lies, NULL, clusters);
    if (problem->C.rows > problem->C.cols) {
        plan.swapped = true;
        const Shape transpose = shape_of(problem, &plan, multiprocessors, c);
        improve(&best, plan, &transpose, &as_it_lies, clusters);
    }
    /* One copy after the other, as long as there is something to gain. */
    const double worth_a_copy = c->launch + 3 * c->copying;
    const bool slow_A = as_it_lies.a_copy > 0, slow_B = as_it_lies.b_copy > 0;
    for (double before = 0; best.cycles > worth_a_copy && best.cycles != before;) {
        Plan with_A = best, with_B = best;
        with_A.copies_A = with_B.copies_B = true;
        before = best.cycles;
        if (slow_A && !best.copies_A) {
            improve_by_copy(&best, with_A, problem, multiprocessors, clusters, c);
        }
        if (slow_B && !best.copies_B) {
            improve_by_copy(&best, with_B, problem, multiprocessors, clusters, c);
        }
    }
    return best;
}

Sgemm plan_block(const Sgemm *problem, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    Sgemm p = *problem;
    p.A.rows = p.C.rows = rows;
    p.B.cols = p.C.cols = cols;
    p.A.data = p.A.data ? p.A.data + row * p.A.row_stride : NULL;
    p.B.data = p.B.data ? p.B.data + col * p.B.col_stride : NULL;
    p.C.data = p.C.data ? p.C.data + row * p.C.row_stride + col * p.C.col_stride : NULL;
    return p;
}

/* Leaves the columns beyond the last whole tile as a rest, or the rows, where that takes less time. */
static void leave_rest(PlanWithRests *plan, bool columns, const Sgemm *problem, int multiprocessors,
                       bool clusters, const PlanConstants *c)
{
    const double worth = 0.98; /* of the time: for less the estimate is not exact enough */
    const int64_t M = problem->C.rows - plan->rows, N = problem->C.cols - plan->cols;
    const int tiling = plan->most.tiling;
    const Tiling *const t = &tilings[tiling < TILING_COUNT ? tiling : 0];
    const int64_t all = columns ? N : M, side = columns != plan->most.swapped ? t->BN : t->BM;
    const int64_t left = divide(all, side) * side;
    if (left == 0 || 2 * (all - left) > side) {
        return;
    }
    const Sgemm most = plan_block(problem, 0, columns ? M : left, 0, columns ? left : N);
    const Sgemm rest = columns ? plan_block(problem, 0, M, left, all - left)
                               : plan_block(problem, left, all - left, 0, problem->C.cols);
    const double of_cols = columns ? 0 : plan->of_cols.cycles;
    const Shape most_shape = shape_of(&most, &plan->most, multiprocessors, c);
    const double of_most = cycles_of(&plan->most, &most_shape);
    const double limit = worth * plan->cycles - of_most - of_cols;
    if (limit < c->gemv_launch) {
        return;
    }
    Plan of_rest = {.cycles = limit};
    if (all - left <= GEMV_MOST_ROWS) {
        const Plan gemv = plan_gemv(&rest, columns, multiprocessors, c);
        keep_better(&of_rest, &gemv);
    }
    const Plan thin = {.swapped = columns};
    const Shape s = shape_of(&rest, &thin, multiprocessors, c);
    improve(&of_rest, thin, &s, NULL, clusters);
    if (of_rest.cycles < limit) {
        plan->most.cycles = of_most;
        plan->cycles = of_most + of_cols + of_rest.cycles;
        *(columns ? &plan->cols : &plan->rows) = all - left;
        *(columns ? &plan->of_cols : &plan->of_rows) = of_rest;
    }
}

PlanWithRests plan_with_rests(const Sgemm *problem, int multiprocessors, bool clusters,
                              const PlanConstants *c)
{
    PlanWithRests plan = {.most = plan_any(problem, multiprocessors, clusters, c)};
    plan.cycles = plan.most.cycles;
    if (plan.most.tiling != GEMV && plan.most.tiling != DIRECT) {
        leave_rest(&plan, true, problem, multiprocessors, clusters, c);
        leave_rest(&plan, false, problem, multiprocessors, clusters, c);
    }
    return plan;
}

/* What splitk's second kernel takes, fitted to times on an H200: cycles, and bytes a cycle and multiprocessor. */
static const double second_kernel = 6880, second_bytes = 10.7;

int plan_splits(const Sgemm *problem, int multiprocessors)
{
    const Plan plain = {.swapped = false};
    const Shape s = shape_of(problem, &plain, multiprocessors, &plan_fitted);
    const Tiled tiled = tiled_by(&tilings[0], &s);
    const int64_t most = divide(s.K, 2 * tiled.t->BK);
    int best = 1;
    double least = estimate(&tiled, &s, 1, 0, HUGE_VAL);
    for (int each = 1; each <= 4; ++each) {
        const int64_t fitting = divide((int64_t)each * multiprocessors, tiled.tiles);
        const int64_t splits = fitting < most ? fitting : most;
        if (splits > 1) {
            const double bytes = 4 * (double)s.M * (double)s.N * (double)(splits + 1);
            const double cycles = estimate(&tiled, &s, splits, 0, HUGE_VAL) + second_kernel +
                                  bytes / (second_bytes * multiprocessors);
            best = cycles < least ? (int)splits : best;
            least = cycles < least ? cycles : least;
        }
    }
    return best;
}

bool plan_loses_to_tensor_cores(double cycles, const Sgemm *p, int multiprocessors)
{
    if (p->A.cols < HALVES_SHORTEST) {
        return false;
    }
    const int64_t down = ceil_div(p->C.rows, HALVES_TILE);
    const int64_t across = ceil_div(p->C.cols, HALVES_TILE);
    const double depth = (double)(ceil_div(p->A.cols, HALVES_DEPTH) * HALVES_DEPTH);
    const double each = (double)ceil_div(down * across, multiprocessors); /* tiles of C */
    const double of_result = depth / halves_lanes + (stored_by_quads(p) ? by_quads : one_by_one);
    const double by_halves = halves_start +
                             splitting * (double)(down + across) * HALVES_TILE * depth +
                             each * HALVES_TILE * HALVES_TILE * of_result;
    return by_halves < cycles;
}
