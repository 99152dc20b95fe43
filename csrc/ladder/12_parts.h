/* Parts of so many steps, as equal as whole steps allow: the first ones have a step more. */
#ifndef SGEMM_KERNELS_12_PARTS_H
#define SGEMM_KERNELS_12_PARTS_H

#include "kernel.h"

namespace {

struct Parts {
    int count;
    int64_t each, longer; // steps of a part, at least 1, and how many parts have one more

    /* On the host: a GPU takes a hundred cycles to divide, before a block can begin. */
    __host__ Parts(int64_t steps, int count)
        : count(count), each(steps / count), longer(steps % count)
    {}
    /* The first step of a part, or of what follows the last. */
    __device__ __forceinline__ int64_t first(unsigned part) const
    {
        return part * each + (part < longer ? part : longer);
    }
    /* Whose a step is. */
    __device__ __forceinline__ int64_t of(int64_t step) const
    {
        const int64_t behind = step - longer * (each + 1);
        return behind < 0 ? divided(step, each + 1).quotient
                          : longer + divided(behind, each).quotient;
    }
};

} // namespace

#endif
