#include "plan.h"

typedef struct {
    int BM, BN, BK;
    int work;  /* results of a thread */
    int warps; /* of a block */
    int resident;
    double speed;
} Tiling;

#define TILING(BM, BN, BK, WM, WN, TM, TN, RESIDENT, SPEED)                                        \
    {BM, BN, BK, (TM) * (TN), (BM) / (WM) * ((BN) / (WN)), RESIDENT, SPEED},
static const Tiling tilings[] = {TILINGS(TILING)};
#undef TILING

/* What an H100 takes, in cycles of a multiprocessor (1.755 GHz) and in bytes a cycle of the whole
 * GPU, fitted to measured times of 49 shapes in four layouts by up to 80 plans each. */
static const double lanes = 128;        /* multiply-adds a cycle */
static const double start = 8700;       /* until the first tiles are there, and after the last */
static const double step = 33;          /* beyond a thread's multiply-adds, at each step of K */
static const double single = 6.9;       /* for each float that a thread copies by itself, */
static const double line = 5.6 / 128;   /* and for each of a tile's, the multiprocessor */
static const double from_cache = 2600;  /* bytes a cycle */
static const double from_memory = 2050; /* bytes a cycle */
static const double adding = 5300;      /* the second kernel, to begin with, */
static const double parts_bytes = 2000; /* and bytes a cycle of parts written and read */

/* What tensor cores take with operands in halves, in the same units: such figures as come near what
 * `waves` took on an H200 for squares of 1024 to 8192. */
enum { HALVES_TILE = 128, HALVES_DEPTH = 64 }; /* lines and depth are filled up to whole ones */
static const double halves_lanes = 540;        /* multiply-adds of float32 a cycle */
static const double halves_start = 25000;      /* several kernels, of which each begins and ends */
static const double splitting = 12.0 / 2150;   /* bytes of an element, by bytes a cycle */

static int64_t ceil_div(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

static double at_least(double value, double least)
{
    return value > least ? value : least;
}

/* The shape of a product as a tiling sees it. */
typedef struct {
    int64_t M, N, K;
    bool a_singles, b_singles; /* whether the operand's tiles are copied float by float */
    double bytes;              /* of A, B and C */
} Shape;

static Shape shape_of(const Sgemm *p, bool swapped)
{
    /* Along the depth, neighbours have to be parted: see TileLoader in kernels/09_tiles.h. */
    const bool a = p->A.col_stride == 1, b = p->B.row_stride == 1;
    const double M = (double)p->C.rows, N = (double)p->C.cols, K = (double)p->A.cols;
    return (Shape){
        .M = swapped ? p->C.cols : p->C.rows,
        .N = swapped ? p->C.rows : p->C.cols,
        .K = p->A.cols,
        .a_singles = swapped ? b : a,
        .b_singles = swapped ? a : b,
        .bytes = 4 * (M * K + K * N + M * N),
    };
}

/* Cycles that a multiprocessor takes for so many blocks at once, each `depth` deep. */
static double cycles_of(const Tiling *t, int64_t blocks, double depth, int single_lines)
{
    const double alone = depth * (t->work + step + single * single_lines / (32.0 * t->warps));
    const double together =
        (double)blocks * depth * (t->BM * t->BN / lanes / t->speed + line * single_lines);
    return blocks ? at_least(together, alone) + start : 0;
}

static double estimate(const Tiling *t, const Shape *s, int64_t splits, bool added,
                       int multiprocessors)
{
    const int64_t blocks = ceil_div(s->M, t->BM) * ceil_div(s->N, t->BN) * splits;
    const double depth = (double)(ceil_div(ceil_div(s->K, t->BK), splits) * t->BK);
    const int64_t of_each = ceil_div(blocks, multiprocessors);
    const int single_lines = (s->a_singles ? t->BM : 0) + (s->b_singles ? t->BN : 0);
    double cycles =
        (double)(of_each / t->resident) * cycles_of(t, t->resident, depth, single_lines) +
        cycles_of(t, of_each % t->resident, depth, single_lines);
    cycles = at_least(cycles, (double)blocks * depth * 4 * (t->BM + t->BN) / from_cache);
    cycles = at_least(cycles, s->bytes / from_memory + start);
    if (added) {
        cycles += adding + 8.0 * (double)s->M * (double)s->N * (double)splits / parts_bytes;
    }
    return cycles;
}

static Plan best_of(const Sgemm *problem, int multiprocessors, int tiling_count, bool may_swap)
{
    Plan best = {.splits = 1};
    double least = -1;
    for (int swapped = 0; swapped <= may_swap; ++swapped) {
        const Shape s = shape_of(problem, swapped);
        for (int tiling = 0; tiling < tiling_count; ++tiling) {
            const Tiling *const t = &tilings[tiling];
            const int64_t tiles = ceil_div(s.M, t->BM) * ceil_div(s.N, t->BN);
            int64_t before = 0;
            if (tiling > 0 && t->BM > 8 * s.M) {
                continue; /* most of it would lie beyond C; no such case was fitted */
            }
            /* As many parts as fill the GPU with one block for each multiprocessor, or several. */
            for (int each = 0; each <= 8; each = each ? 2 * each : 1) {
                int64_t splits = (int64_t)each * multiprocessors / tiles;
                const int64_t most = s.K / (2 * t->BK);
                splits = splits < most ? splits : most;
                splits = splits > 1 ? splits : 1;
                if (splits == before) {
                    continue;
                }
                before = splits;
                const double cycles =
                    estimate(t, &s, splits, splits > 1 || swapped, multiprocessors);
                if (least < 0 || cycles < least) {
                    least = cycles;
                    best = (Plan){tiling, (int)splits, swapped, 0, cycles};
                }
            }
        }
    }
    return best;
}

/* For a C of one row, or of one column. K has parts only where there are too few columns for the
 * GPU. */
static Plan plan_vector(const Sgemm *p, int multiprocessors)
{
    const bool swapped = p->C.rows != 1;
    const Matrix *const B = swapped ? &p->A : &p->B; /* or its transpose */
    const bool by_rows = swapped ? B->col_stride != 1 : B->row_stride != 1;
    const int64_t cols = swapped ? B->rows : B->cols;
    int width = 16;
    while (width < 128 && ceil_div(cols, width) > multiprocessors) {
        width *= 2;
    }
    const int64_t blocks = ceil_div(cols, by_rows ? width : GEMV_COLUMNS);
    int64_t splits = 2 * blocks > multiprocessors ? 1 : 2 * multiprocessors / blocks;
    const int64_t most = p->A.cols / 512;
    splits = splits < most ? splits : most;
    return (Plan){GEMV, splits > 1 ? (int)splits : 1, swapped, width, 0};
}

Plan plan_any(const Sgemm *problem, int multiprocessors)
{
    if (problem->C.rows == 1 || problem->C.cols == 1) {
        return plan_vector(problem, multiprocessors);
    }
    return best_of(problem, multiprocessors, TILING_COUNT, problem->C.rows > problem->C.cols);
}

Plan plan_splits(const Sgemm *problem, int multiprocessors)
{
    return best_of(problem, multiprocessors, 1, false);
}

bool plan_loses_to_tensor_cores(const Plan *plan, const Sgemm *p, int multiprocessors)
{
    if (p->A.cols < HALVES_SHORTEST || plan->tiling == GEMV) {
        return false;
    }
    const int64_t down = ceil_div(p->C.rows, HALVES_TILE);
    const int64_t across = ceil_div(p->C.cols, HALVES_TILE);
    const double depth = (double)(ceil_div(p->A.cols, HALVES_DEPTH) * HALVES_DEPTH);
    const double each = (double)ceil_div(down * across, multiprocessors); /* tiles of C */
    const double cycles = halves_start + splitting * (double)(down + across) * HALVES_TILE * depth +
                          each * HALVES_TILE * HALVES_TILE * depth / halves_lanes;
    return cycles < plan->cycles;
}

bool plan_copies_B(const Sgemm *p)
{
    /* On an H100 the copy then takes less than 3 % of the time, its launch included. */
    const int64_t least_rows = 3072;
    const double least_multiply_adds = 3e10;
    return p->B.col_stride != 1 && p->B.cols % 4 == 0 && p->C.rows >= least_rows &&
           (double)p->C.rows * (double)p->C.cols * (double)p->A.cols >= least_multiply_adds;
}
