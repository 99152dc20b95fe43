#include "division.h"

/* The estimate is less exact than this. */
static const double least_gain = 1.0 / 16;

Division division_choose(const Sgemm *problem, int most_others, const DivisionCosts *costs)
{
    const double M = (double)problem->C.rows, N = (double)problem->C.cols,
                 K = (double)problem->A.cols;
    Division best = {0, 0};
    double most_rows = least_gain * M;
    for (int others = 1; others <= most_others; ++others) {
        /* The first GPU computes M - others * rows rows. Each other GPU copies B and its rows of A
         * and C, and computes `rows` rows. They finish together if
         *     (M - others * rows) * N * K
         *         = rows * N * K + copied * (K * N + rows * (K + N)) + start. */
        const double copied = others * costs->copied_float;
        const double start = costs->helped + others * costs->helper;
        const double rows =
            (M * N * K - copied * K * N - start) / ((others + 1) * N * K + copied * (K + N));
        if (others * rows > most_rows) {
            most_rows = others * rows;
            best = (Division){others, (int64_t)rows};
        }
    }
    return best.rows > 0 ? best : (Division){0, 0};
}
