/* The CPU device's multiply: see Device in ../core/device.h. */
#ifndef SGEMM_CPU_MULTIPLY_H
#define SGEMM_CPU_MULTIPLY_H

#include "../core/product.h"

Status cpu_multiply(const Product *product);

#endif
