#include "panels.h"

/* A piece of C that keeps a large GPU busy: one tile of 128 x 256 for each multiprocessor. */
static const int64_t usual = 2048;
static const int64_t tile = 256;  /* panels are whole tiles */
static const int64_t least = 128; /* and no narrower than this, whatever the memory */
static const int64_t least_depth = 64;

static int64_t ceil_div(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The width of panels about `wanted` wide that divide `all` evenly. */
static int64_t even(int64_t all, int64_t wanted)
{
    const int64_t count = ceil_div(all, wanted);
    return smaller(all, ceil_div(ceil_div(all, count), tile) * tile);
}

static int64_t quads(int64_t length)
{
    return (length + 3) / 4 * 4;
}

int64_t panels_a_elements(const Panels *p)
{
    return quads(p->rows) * quads(p->depth); /* whichever way its lines go */
}

int64_t panels_b_elements(const Panels *p)
{
    return quads(p->depth) * quads(p->cols);
}

int64_t panels_c_elements(const Panels *p)
{
    return p->rows * quads(p->cols);
}

static double elements(const Panels *p)
{
    return (double)p->a_held * (double)panels_a_elements(p) +
           (double)p->b_held * (double)panels_b_elements(p) +
           (double)p->c_held * (double)panels_c_elements(p);
}

/* Halves a width, down to the least; false if it is that already. */
static bool halve(int64_t *width, int64_t least_width)
{
    const int64_t before = *width;
    *width = *width > 2 * least_width ? ceil_div(*width / 2, 4) * 4 : smaller(*width, least_width);
    return *width < before;
}

bool panels_plan(int64_t M, int64_t N, int64_t K, int64_t room, Panels *p)
{
    *p = (Panels){M, N, K, 1, 1, 1};
    if ((double)M * (double)N > 1.5 * (double)(usual * usual)) {
        p->rows = even(M, N < usual ? usual * usual / N : usual);
        p->cols = even(N, M < usual ? usual * usual / M : usual);
    }
    const int64_t b_count = ceil_div(N, p->cols), a_count = ceil_div(M, p->rows);
    p->a_held = (int)smaller(a_count, 1 << 20);
    p->b_held = (int)smaller(b_count, B_AHEAD);
    p->c_held = (int)smaller(
        (double)a_count * (double)b_count < C_AHEAD ? a_count * b_count : C_AHEAD, C_AHEAD);
    if (elements(p) <= (double)room) {
        return true;
    }
    /* Fewer at a time; then narrower ones; then parts of the depth, whose sums are added. */
    p->c_held = (int)smaller(p->c_held, 2);
    p->b_held = (int)smaller(p->b_held, 2);
    for (;;) {
        const double left =
            (double)room - (elements(p) - (double)p->a_held * (double)panels_a_elements(p));
        const double fit = left / (double)(panels_a_elements(p) ? panels_a_elements(p) : 1);
        if (fit >= 1) {
            p->a_held = fit < p->a_held ? (int)fit : p->a_held;
            break;
        }
        int64_t *const wider = p->rows > p->cols ? &p->rows : &p->cols;
        if (!halve(wider, least)) {
            break;
        }
        p->a_held = (int)smaller(ceil_div(M, p->rows), 1 << 20);
        p->b_held = (int)smaller(ceil_div(N, p->cols), 2);
    }
    if (elements(p) > (double)room) {
        p->a_held = p->b_held = p->c_held = 1;
        while (elements(p) > (double)room && halve(&p->depth, least_depth)) {
        }
    }
    return elements(p) <= (double)room;
}
