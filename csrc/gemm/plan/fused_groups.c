#include "fused_groups.h"

#include "fused_plan.h"

enum { FLOAT = sizeof(float), MOST_PAIRS = 512 << 20 /* bytes of fp16 pairs of a launch */ };

/* How far behind `first` a matrix is, in units of so many bytes. False if that is no integer, or
 * too far. */
static bool find_distance(const Matrix *first, const Matrix *next, int64_t unit, int *distance)
{
    const int64_t most = 1 << 30;
    const int64_t bytes = (int64_t)((uintptr_t)next->data - (uintptr_t)first->data);
    *distance = (int)(bytes / unit);
    return bytes % unit == 0 && bytes / unit > -most && bytes / unit < most;
}

/* Adds the columns of a matrix to those of `groups` others. One column has any stride. */
static bool add_columns(Matrix *all, const Matrix *next, int groups)
{
    const bool has_stride = all->cols > groups;
    if (all->rows != next->rows || all->row_stride != next->row_stride ||
        (has_stride && next->cols > 1 && next->col_stride != all->col_stride)) {
        return false;
    }
    all->col_stride = next->cols > 1 ? next->col_stride : all->col_stride;
    all->cols += next->cols;
    return true;
}

static bool has_memory(int64_t cols, int64_t K)
{
    return cols <= INT32_MAX && ceil_div(cols, FUSED_ROWS) * FUSED_ROWS <=
                                    MOST_PAIRS / (FLOAT * ceil_div(K, FUSED_CHUNK) * FUSED_CHUNK);
}

static bool add_group(FusedGroups *groups, const Sgemm *first, const Sgemm *next)
{
    GroupStarts *const starts = &groups->starts;
    Sgemm *const whole = &groups->whole;
    const int n = starts->count;
    Matrix B = whole->B, C = whole->C;
    if (n == FUSED_GROUPS_MOST || next->alpha != first->alpha || next->beta != first->beta ||
        !matrix_is_alike(&first->A, &next->A) || !add_columns(&B, &next->B, n) ||
        !add_columns(&C, &next->C, n) || !has_memory(C.cols, B.rows) ||
        !find_distance(&first->A, &next->A, FUSED_GROUPS_UNIT, &starts->A[n]) ||
        !find_distance(&first->B, &next->B, FUSED_GROUPS_UNIT, &starts->B[n]) ||
        !find_distance(&first->C, &next->C, FLOAT, &starts->C[n])) {
        return false;
    }
    whole->B = B;
    whole->C = C;
    starts->cols[++starts->count] = (int)C.cols;
    return true;
}

/* Counts the places of A from the lowest address. */
static void place_lowest_first(FusedGroups *groups)
{
    GroupStarts *const starts = &groups->starts;
    int lowest = 0, highest = 0;
    for (int n = 0; n < starts->count; ++n) {
        lowest = starts->A[n] < lowest ? starts->A[n] : lowest;
        highest = starts->A[n] > highest ? starts->A[n] : highest;
    }
    for (int n = 0; n < starts->count; ++n) {
        starts->A[n] -= lowest;
    }
    groups->whole.A.data += (int64_t)lowest * (FUSED_GROUPS_UNIT / FLOAT);
    groups->places = highest - lowest + 1;
}

static Sgemm oriented(const Sgemm *problem, bool transposed)
{
    return transposed ? sgemm_transposed(problem) : *problem;
}

/* Finds products whose C have different columns; if `transposed`, different rows. */
static int find_oriented(const Sgemm *problems, int count, bool transposed, FusedGroups *groups)
{
    GroupStarts *const starts = &groups->starts;
    const Sgemm first = oriented(&problems[0], transposed);
    const Matrix lines = fused_lines(&first);
    if (!tma_can_load(&lines) || first.B.row_stride != 1 ||
        !has_memory(first.C.cols, first.A.cols)) {
        return 0;
    }
    groups->whole = first;
    groups->transposed = transposed;
    starts->count = 1;
    starts->cols[0] = starts->A[0] = starts->B[0] = starts->C[0] = 0;
    starts->cols[1] = (int)first.C.cols;
    bool belongs = true;
    for (int n = 1; n < count && belongs; ++n) {
        const Sgemm next = oriented(&problems[n], transposed);
        belongs = add_group(groups, &first, &next);
    }
    place_lowest_first(groups);
    return starts->count;
}

int fused_groups_find(const Sgemm *problems, int count, FusedGroups *groups)
{
    const int of_rows = find_oriented(problems, count, true, groups);
    return of_rows > 1 ? of_rows : find_oriented(problems, count, false, groups);
}

/* Numbers the tiles of a width. Returns how many there are. */
static int64_t number_tiles(FusedGroups *groups, int width)
{
    const int64_t down = ceil_div(groups->whole.C.rows, FUSED_ROWS);
    GroupStarts *const starts = &groups->starts;
    int64_t tiles = 0;
    for (int n = 0; n < starts->count; ++n) {
        starts->tiles[n] = (int)tiles;
        tiles += down * ceil_div(starts->cols[n + 1] - starts->cols[n], width);
    }
    starts->tiles[starts->count] = (int)tiles;
    return tiles;
}

void fused_groups_plan(FusedGroups *groups, int multiprocessors)
{
    const Sgemm *const p = &groups->whole;
    groups->cycles = INFINITY;
    for (int width = FUSED_NARROW; width <= FUSED_WIDE; width += FUSED_WIDE - FUSED_NARROW) {
        const int64_t tiles = number_tiles(groups, width);
        const FusedPlan whole = {false, width, 1, tiles, 0};
        const double cycles =
            tiles > INT32_MAX
                ? INFINITY
                : fused_product_cycles(p, tiles, &whole, store_factor(p), multiprocessors);
        if (cycles < groups->cycles) {
            groups->cycles = cycles;
            groups->width = width;
        }
    }
    if (groups->cycles < INFINITY) {
        number_tiles(groups, groups->width);
        const double M = (double)p->C.rows, N = (double)p->C.cols, K = (double)p->A.cols;
        const double memory = 4 * M * ((double)groups->starts.count * K + N);
        groups->cycles = fused_and_split(p, groups->cycles, memory, 1);
    }
}
