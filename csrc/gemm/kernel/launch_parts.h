/* Launches a batch in parts. */
#ifndef SGEMM_KERNELS_LAUNCH_PARTS_H
#define SGEMM_KERNELS_LAUNCH_PARTS_H

#include "../../base/addend.h"

/* Calls launch_part for parts of a batch, each of at most so many products. */
template <class LaunchPart>
static inline Status launch_parts(const Sgemm *batch, const Launch *where, int64_t most,
                                  const LaunchPart &launch_part)
{
    Status status = status_ok();
    for (int64_t n = 0; n < batch->count && status.code == STATUS_OK; n += most) {
        const int64_t left = batch->count - n;
        const Sgemm part = part_of_batch(batch, n, left < most ? left : most);
        Addend addend;
        const Launch of_part = addend_part(where, n, &addend);
        status = launch_part(&part, &of_part);
    }
    return status;
}

#endif
