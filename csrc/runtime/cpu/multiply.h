/* The CPU device's multiply, multiply_many and runs_16bit: see Device in ../device.h. */
#ifndef SGEMM_CPU_MULTIPLY_H
#define SGEMM_CPU_MULTIPLY_H

#include "../product.h"

Status cpu_multiply(const Product *product);
Status cpu_multiply_many(const Product *products, int64_t count);
bool cpu_runs_16bit(int index);

#endif
