#include "variant.h"

static Matrix matrix_at(const Matrix *batch, int64_t number)
{
    Matrix matrix = *batch;
    if (matrix.data) {
        matrix.data += number * matrix.batch_stride;
    }
    return matrix;
}

Status variant_launch(const Variant *variant, DeviceKind kind, const Sgemm *problem,
                      const Launch *where)
{
    const int64_t most = variant->batched ? BATCH_OF_LAUNCH : 1;
    Status status = status_ok();
    for (int64_t first = 0; first < problem->count && status.code == STATUS_OK; first += most) {
        if (where->interrupt && first > 0 && interrupt_raised(where->interrupt)) {
            return status_error(STATUS_INTERRUPTED, "interrupted");
        }
        const int64_t left = problem->count - first;
        const Sgemm part = {
            .A = matrix_at(&problem->A, first),
            .B = matrix_at(&problem->B, first),
            .C = matrix_at(&problem->C, first),
            .alpha = problem->alpha,
            .beta = problem->beta,
            .count = left < most ? left : most,
        };
        status = variant->launch[kind](&part, where);
    }
    return status;
}
