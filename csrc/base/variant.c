#include "variant.h"

#include "addend.h"

Status variant_fits(const KernelSpec *spec, int64_t M, int64_t N, int64_t K)
{
    const int BM = spec->block_tile[0], BN = spec->block_tile[1];
    if (!spec->contiguous || BM < 1 || BN < 1 ||
        (M <= INT32_MAX && N <= INT32_MAX && K <= INT32_MAX &&
         ((M + BM - 1) / BM) * ((N + BN - 1) / BN) <= INT32_MAX)) {
        return status_ok();
    }
    return status_error(STATUS_INVALID,
                        "%s has 32-bit sizes and one block for each %d x %d tile of C, and M, N, K "
                        "are %lld, %lld, %lld: at most 2147483647 each, and as many blocks; 'simt' "
                        "and 'auto' have 64-bit sizes",
                        spec->symbol, BM, BN, (long long)M, (long long)N, (long long)K);
}

Status variant_launch(const Variant *variant, DeviceKind kind, const Sgemm *problem,
                      const Launch *where, int64_t *launched)
{
    const int64_t most = variant->batch;
    while (*launched < problem->count) {
        if (*launched > 0 && interrupt_raised(where->interrupt)) {
            return status_error(STATUS_INTERRUPTED, "interrupted");
        }
        const int64_t left = problem->count - *launched, count = left < most ? left : most;
        Sgemm part = part_of_batch(problem, *launched, count);
        part.A = typed_in_batch(&problem->A, *launched, where->elements[0]);
        part.B = typed_in_batch(&problem->B, *launched, where->elements[1]);
        Addend addend;
        const Launch of_part = addend_part(where, *launched, &addend);
        const Status status = variant->launch[kind](&part, &of_part);
        if (status.code != STATUS_OK) {
            return status;
        }
        *launched += count;
    }
    return status_ok();
}
