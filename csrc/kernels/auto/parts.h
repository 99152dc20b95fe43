/* Parts of K, as equal as whole steps allow: the first ones have a step more. */
#ifndef SGEMM_KERNELS_AUTO_PARTS_H
#define SGEMM_KERNELS_AUTO_PARTS_H

#include "../kernel.h"

namespace {

/* Divided on the host: a GPU takes a hundred cycles for that, before a block can begin. */
struct Parts {
    int count;
    int64_t each, longer; // steps of a part, and how many parts have one more

    __host__ Parts(int64_t steps, int count)
        : count(count), each(steps / count), longer(steps % count)
    {}
    /* The first step of a part, or of what follows the last. */
    __device__ __forceinline__ int64_t first(unsigned part) const
    {
        return part * each + (part < longer ? part : longer);
    }
};

} // namespace

#endif
