/* Runs the last block of a plain kernel with operands of more than 2^31 elements, to find indices
 * that overflow. Only pages that the block touches take memory. */
#ifndef SGEMM_CUSTOM_LARGE_H
#define SGEMM_CUSTOM_LARGE_H

#include "../base/sgemm.h"
#include "../base/status.h"

/* `text` is M,N,K of a large product, then of small ones that the kernel computes rightly, and
 * which operands are transposed. Prints what the last block does otherwise in the large product. */
bool run_large(const char *text, Status (*launch)(const Sgemm &problem));

#endif
