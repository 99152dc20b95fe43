/* What a choice costs that is not cached: `plan_cost M N K LAYOUT ...` times the estimates of
 * all plans for each shape and layout, and prints a line of JSON for each, with the nanoseconds
 * of a call in each repetition. */
#define _POSIX_C_SOURCE 199309L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../csrc/gemm/plan/plan.h"

enum { REPETITIONS = 25, CALLS = 100, MULTIPROCESSORS = 132 /* of an H100 */ };

/* N: by rows; T: by columns. */
static Matrix matrix_of(int64_t rows, int64_t cols, char layout)
{
    return layout == 'T' ? (Matrix){NULL, rows, cols, 1, rows, 0}
                         : (Matrix){NULL, rows, cols, cols, 1, 0};
}

static double nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

int main(int count, char **arguments)
{
    for (int at = 1; at + 3 < count; at += 4) {
        const int64_t M = atoll(arguments[at]), N = atoll(arguments[at + 1]);
        const int64_t K = atoll(arguments[at + 2]);
        const char *const layout = arguments[at + 3];
        const Sgemm problem = {.A = matrix_of(M, K, layout[0]),
                               .B = matrix_of(K, N, layout[1]),
                               .C = matrix_of(M, N, 'N'),
                               .alpha = 1.0f,
                               .count = 1};
        const PlanDevice device = {MULTIPROCESSORS, CLUSTER_MOST_BLOCKS, 227 * 1024, &plan_fitted};
        Plan plans[PLANS_MOST];
        int listed = 0;
        printf("{\"M\": %lld, \"N\": %lld, \"K\": %lld, \"layout\": \"%s\", \"nanoseconds\": [",
               (long long)M, (long long)N, (long long)K, layout);
        for (int repetition = 0; repetition < REPETITIONS; ++repetition) {
            const double begin = nanoseconds();
            for (int call = 0; call < CALLS; ++call) {
                const PlanShape shape = plan_shape(&problem);
                listed = plan_list(&shape, &device, plans);
            }
            printf("%s%.1f", repetition ? ", " : "", (nanoseconds() - begin) / CALLS);
        }
        const Plan plan = plan_choose(&problem, &device);
        printf("], \"plans\": %d, \"kernel\": %d, \"splits\": %d, \"transposed\": %s}\n", listed,
               plan.kernel, plan.splits, plan.transposed ? "true" : "false");
    }
    return 0;
}
