#include "panels.h"

#include "../base/sgemm.h"

/* The usual width of a panel. 2048 x 2048 elements of C keep a large GPU busy: one 128 x 256 tile
 * for each multiprocessor. */
static const int64_t usual = 2048;
static const int64_t tile = 256;  /* widths are multiples of this */
static const int64_t least = 128; /* the smallest width, however little memory there is */
static const int64_t least_depth = 64;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A width near `wanted` that divides `all` into panels of about equal width. */
static int64_t even(int64_t all, int64_t wanted)
{
    const int64_t count = ceil_div(all, wanted);
    return smaller(all, ceil_div(ceil_div(all, count), tile) * tile);
}

static int64_t round_up_to_4(int64_t length)
{
    return (length + 3) / 4 * 4;
}

int64_t panels_a_elements(const Panels *p)
{
    return round_up_to_4(p->rows) * round_up_to_4(p->depth); /* row-major or column-major */
}

int64_t panels_b_elements(const Panels *p)
{
    return round_up_to_4(p->depth) * round_up_to_4(p->cols);
}

int64_t panels_c_elements(const Panels *p)
{
    return p->rows * round_up_to_4(p->cols);
}

static double elements(const Panels *p)
{
    return (double)p->a_held * (double)panels_a_elements(p) +
           (double)p->b_held * (double)panels_b_elements(p) +
           (double)p->c_held * (double)panels_c_elements(p);
}

/* Halves a width, but not below least_width. False if it did not shrink. */
static bool halve(int64_t *width, int64_t least_width)
{
    const int64_t before = *width;
    *width = *width > 2 * least_width ? ceil_div(*width / 2, 4) * 4 : smaller(*width, least_width);
    return *width < before;
}

bool panels_plan(int64_t M, int64_t N, int64_t K, int64_t capacity, bool rows_alone, Panels *p)
{
    *p = (Panels){M, N, K, 1, 1, 1};
    if ((double)M * (double)N > 1.5 * (double)(usual * usual)) {
        const int64_t wide = rows_alone ? ceil_div(usual * usual, N) : usual;
        p->rows = even(M, N < usual ? usual * usual / N : wide);
        p->cols = rows_alone ? N : even(N, M < usual ? usual * usual / M : usual);
    }
    const int64_t b_count = ceil_div(N, p->cols), a_count = ceil_div(M, p->rows);
    p->a_held = (int)smaller(a_count, 1 << 20);
    p->b_held = (int)smaller(b_count, B_AHEAD);
    p->c_held = (int)smaller(
        (double)a_count * (double)b_count < C_AHEAD ? a_count * b_count : C_AHEAD, C_AHEAD);
    if (elements(p) <= (double)capacity) {
        return true;
    }
    /* First hold fewer panels, then narrow them, then split K and add up partial sums. */
    p->c_held = (int)smaller(p->c_held, 2);
    p->b_held = (int)smaller(p->b_held, 2);
    for (;;) {
        const double left =
            (double)capacity - (elements(p) - (double)p->a_held * (double)panels_a_elements(p));
        const double fit = left / (double)(panels_a_elements(p) ? panels_a_elements(p) : 1);
        if (fit >= 1) {
            p->a_held = fit < p->a_held ? (int)fit : p->a_held;
            break;
        }
        int64_t *const wider = p->rows > p->cols || rows_alone ? &p->rows : &p->cols;
        if (!halve(wider, least)) {
            break;
        }
        p->a_held = (int)smaller(ceil_div(M, p->rows), 1 << 20);
        p->b_held = (int)smaller(ceil_div(N, p->cols), 2);
    }
    if (elements(p) > (double)capacity) {
        p->a_held = p->b_held = p->c_held = 1;
        while (!rows_alone && elements(p) > (double)capacity && halve(&p->depth, least_depth)) {
        }
    }
    return elements(p) <= (double)capacity;
}
