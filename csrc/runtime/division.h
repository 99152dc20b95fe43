/* Divides the rows of a product over several GPUs when all operands are on one of them. */
#ifndef SGEMM_DIVISION_H
#define SGEMM_DIVISION_H

#include "../base/sgemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The costs of other GPUs, in multiply-adds that a GPU could do in the same time. */
typedef struct {
    double copied_float; /* one float copied from or to the operands' GPU, whose link all share */
    double helped;       /* fixed cost of using other GPUs at all */
    double helper;       /* cost of each: the host starts them one after another */
} DivisionCosts;

/* How many other GPUs take part, and the number of rows of each. */
typedef struct {
    int others;
    int64_t rows;
} Division;

/* The division over at most this many other GPUs with the least estimated time. No other GPU takes
 * part unless the estimated gain is at least a sixteenth. */
Division division_choose(const Sgemm *problem, int most_others, const DivisionCosts *costs);

#ifdef __cplusplus
}
#endif
#endif
