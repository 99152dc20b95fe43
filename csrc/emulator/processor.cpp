/* Properties of this processor, and of the GPU that the CPU device models. */
#include <stdlib.h>

#include "grid.h"

bool fuses_multiply_add()
{
#ifdef __x86_64__ /* kernels are compiled twice: ../gemm/kernel/launch.h */
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
#else
    return FUSES_MULTIPLY_ADD;
#endif
}

Status modelled_multiprocessors(int *count)
{
    const char *const name = "SGEMM_KERNELS_CPU_MULTIPROCESSORS", *const text = getenv(name);
    *count = 0;
    if (!text || !*text) {
        return status_ok();
    }
    char *end;
    const long number = strtol(text, &end, 10);
    if (*end || number < 1 || number > 4096) {
        return status_error(STATUS_INVALID, "%s is '%.40s': it must be a number from 1 to 4096",
                            name, text);
    }
    *count = static_cast<int>(number);
    return status_ok();
}
