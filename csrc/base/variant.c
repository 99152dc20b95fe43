#include "variant.h"

Status variant_launch(const Variant *variant, DeviceKind kind, const Sgemm *problem,
                      const Launch *where, int64_t *launched)
{
    const int64_t most = variant->batch;
    while (*launched < problem->count) {
        if (*launched > 0 && interrupt_raised(where->interrupt)) {
            return status_error(STATUS_INTERRUPTED, "interrupted");
        }
        const int64_t left = problem->count - *launched, count = left < most ? left : most;
        const Sgemm part = part_of_batch(problem, *launched, count);
        const Status status = variant->launch[kind](&part, where);
        if (status.code != STATUS_OK) {
            return status;
        }
        *launched += count;
    }
    return status_ok();
}
