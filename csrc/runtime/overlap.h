/* Whether arrays of any strides share memory, decided exactly where that is cheap. */
#ifndef SGEMM_OVERLAP_H
#define SGEMM_OVERLAP_H

#include "strided.h"
#include "view.h"

/* OVERLAP_UNKNOWN: the arrays may share memory, but an answer would take too long. */
typedef enum { OVERLAP_NONE = 0, OVERLAP_FOUND, OVERLAP_UNKNOWN } Overlap;

/* Whether two elements of the array share a byte. */
Overlap overlap_within(const View *array);

/* Whether an element of one matrix shares a byte with one of the other. Neither is empty. */
Overlap overlap_between(const Strided *one, const Strided *other);

#endif
