#include "division.h"

int64_t division_rows_for_others(const Sgemm *problem, int others, const DivisionCosts *costs)
{
    const double M = (double)problem->C.rows, N = (double)problem->C.cols,
                 K = (double)problem->A.cols;
    /* The first GPU computes M - others * rows rows. Each other GPU copies B and its rows of A and
     * C, and computes `rows` rows. All finish together if
     *     (M - others * rows) * N * K
     *         = rows * N * K + copied_float * (K * N + rows * (K + N)) + part. */
    const double rows = (M * N * K - costs->copied_float * K * N - costs->part) /
                        ((others + 1) * N * K + costs->copied_float * (K + N));
    return rows > 0 ? (int64_t)rows : 0;
}
