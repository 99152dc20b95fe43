/* Which GPU's tensor cores the CPU device has. */
#ifndef SGEMM_EMULATOR_TENSOR_CORE_MODEL_H
#define SGEMM_EMULATOR_TENSOR_CORE_MODEL_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(hidden)

typedef struct {
    int major, minor; /* the GPU's compute capability */
    int products;     /* added at once: a divisor of 16 */
    int bits;         /* kept below the largest exponent: 1 to 25 */
} TensorCoreModel;

/* At first compute capability 9.0: 16 products and 25 bits. */
TensorCoreModel cpu_tensor_cores(void);

/* For all products that begin later, of all threads. Returns false for an impossible model. */
bool cpu_tensor_cores_set(const TensorCoreModel *model);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
