#include "fused_groups.h"

#include "fused_plan.h"

enum { FLOAT = sizeof(float), MOST_PAIRS = 512 << 20 /* bytes of fp16 pairs of a launch */ };

static int64_t bytes_between(const Matrix *X, const Matrix *Y)
{
    return (int64_t)((uintptr_t)Y->data - (uintptr_t)X->data);
}

static bool is_alike(const Matrix *X, const Matrix *Y)
{
    return X->rows == Y->rows && X->cols == Y->cols && X->row_stride == Y->row_stride &&
           X->col_stride == Y->col_stride;
}

/* Adds the columns of a matrix to those before it in the same matrix, if they follow them. One
 * column has any stride. */
static bool add_columns(Matrix *all, const Matrix *next)
{
    const int64_t bytes = bytes_between(all, next);
    const int64_t stride = all->cols > 1 ? all->col_stride : bytes / FLOAT;
    if (all->rows != next->rows || all->row_stride != next->row_stride ||
        bytes != stride * all->cols * FLOAT || (next->cols > 1 && next->col_stride != stride)) {
        return false;
    }
    all->cols += next->cols;
    all->col_stride = stride;
    return true;
}

/* The first line of a group's A, counted from the first group's; -1 if TMA cannot load both as one
 * matrix. A tile may read lines behind the last one of a matrix. If the next group's A does not
 * begin there, memory need not, so tiles must end with the matrix. */
static int64_t first_line(const FusedGroups *groups, const Matrix *A)
{
    const Matrix lines = fused_lines(&groups->whole);
    const bool is_mn_major = fused_is_mn_major(&groups->whole);
    const int64_t bytes = bytes_between(&groups->whole.A, A), pitch = lines.row_stride * FLOAT;
    const int64_t line = bytes / pitch, last = groups->starts.lines[groups->starts.count - 1];
    const bool tiles_fit = lines.rows % (is_mn_major ? FUSED_CHUNK : FUSED_ROWS) == 0;
    const bool is_next = !is_mn_major && line - last <= lines.rows;
    const bool loads = is_alike(&groups->whole.A, A) && bytes == line * pitch && line >= last &&
                       line <= INT32_MAX - lines.rows && (tiles_fit || is_next);
    return loads ? line : -1;
}

static bool has_memory(int64_t cols, int64_t K)
{
    return cols <= INT32_MAX && ceil_div(cols, FUSED_ROWS) * FUSED_ROWS <=
                                    MOST_PAIRS / (FLOAT * ceil_div(K, FUSED_CHUNK) * FUSED_CHUNK);
}

static bool add_group(FusedGroups *groups, const Sgemm *next)
{
    GroupStarts *const starts = &groups->starts;
    Sgemm *const whole = &groups->whole;
    Matrix B = whole->B, C = whole->C;
    const int64_t line = first_line(groups, &next->A);
    if (starts->count == FUSED_GROUPS_MOST || next->alpha != whole->alpha ||
        next->beta != whole->beta || line < 0 || !add_columns(&B, &next->B) ||
        !add_columns(&C, &next->C) || (B.row_stride != 1 && B.col_stride != 1) ||
        !has_memory(C.cols, B.rows)) {
        return false;
    }
    whole->B = B;
    whole->C = C;
    starts->lines[starts->count++] = (int)line;
    starts->cols[starts->count] = (int)C.cols;
    return true;
}

static Sgemm oriented(const Sgemm *problem, bool transposed)
{
    return transposed ? sgemm_transposed(problem) : *problem;
}

/* Finds groups of columns of C; if `transposed`, of rows. */
static int find_oriented(const Sgemm *problems, int count, bool transposed, FusedGroups *groups)
{
    GroupStarts *const starts = &groups->starts;
    groups->whole = oriented(&problems[0], transposed);
    groups->transposed = transposed;
    const Matrix lines = fused_lines(&groups->whole);
    if (!tma_can_load(&lines) || !has_memory(groups->whole.C.cols, groups->whole.A.cols)) {
        return 0;
    }
    starts->count = 1;
    starts->cols[0] = starts->lines[0] = 0;
    starts->cols[1] = (int)groups->whole.C.cols;
    bool belongs = true;
    for (int n = 1; n < count && belongs; ++n) {
        const Sgemm next = oriented(&problems[n], transposed);
        belongs = add_group(groups, &next);
    }
    starts->lines[starts->count] = (int)(starts->lines[starts->count - 1] + lines.rows);
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
        const double cycles =
            tiles > INT32_MAX
                ? INFINITY
                : fused_product_cycles(p, tiles, width, 1, store_factor(p), multiprocessors);
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
