/* How the rows of a product whose operands one GPU has are divided over it and others. */
#ifndef SGEMM_DIVISION_H
#define SGEMM_DIVISION_H

#include "sgemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What another GPU's part costs, in multiply-adds that a GPU does in that time: a float that is copied
 * there or back, and the part as such. */
typedef struct {
    double copied_float, part;
} DivisionCosts;

/* How many rows each of so many other GPUs takes, so that all finish together; 0 if the first is done
 * sooner alone. */
int64_t division_rows_for_others(const Sgemm *problem, int others, const DivisionCosts *costs);

#ifdef __cplusplus
}
#endif
#endif
