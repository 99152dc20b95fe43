/* Divides the rows of a product over several GPUs when all operands are on one of them. */
#ifndef SGEMM_DIVISION_H
#define SGEMM_DIVISION_H

#include "sgemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The cost of using another GPU, in multiply-adds that a GPU could do in the same time: per float
 * copied there or back, and a fixed cost per GPU. */
typedef struct {
    double copied_float, part;
} DivisionCosts;

/* The number of rows for each of `others` other GPUs such that all GPUs finish together; 0 if the
 * first GPU alone is faster. */
int64_t division_rows_for_others(const Sgemm *problem, int others, const DivisionCosts *costs);

#ifdef __cplusplus
}
#endif
#endif
