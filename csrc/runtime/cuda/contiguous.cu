#include "contiguous.h"

#include "../../base/scratch.h"
#include "strided_copy.h"

namespace {

size_t bytes_of(const Matrix &matrix)
{
    return static_cast<size_t>(matrix.rows * matrix.cols) * sizeof(float);
}

Status copy(const Matrix &to, const Matrix &from, const Launch *where)
{
    const Strided target = strided_of_matrix(&to), source = strided_of_matrix(&from);
    const cudaError_t error = launch_strided_copy(&target, &source, where->stream);
    return error == cudaSuccess ? status_ok() : launch_failed(where, error);
}

Status launch_one(const Variant *variant, const Sgemm &problem, const Launch *where)
{
    ContiguousProduct product(problem, where);
    Sgemm packed;
    Status status = product.prepare(&packed);
    if (status.code == STATUS_OK) {
        status = variant->launch[DEVICE_CUDA](&packed, where);
    }
    return status.code == STATUS_OK ? product.write_back() : status;
}

} // namespace

Contiguous::~Contiguous()
{
    if (memory_) {
        scratch_free(memory_, where_);
    }
}

Status Contiguous::prepare(bool filled, Matrix *matrix)
{
    *matrix = given_;
    if (matrix_is_contiguous(&given_) || bytes_of(given_) == 0) {
        return status_ok();
    }
    const Status status = scratch_alloc(bytes_of(given_), where_, &memory_);
    copy_ = {static_cast<float *>(memory_), given_.rows, given_.cols, given_.cols, 1};
    *matrix = copy_;
    return status.code == STATUS_OK && filled ? copy(copy_, given_, where_) : status;
}

Status Contiguous::write_back() const
{
    return memory_ ? copy(given_, copy_, where_) : status_ok();
}

Status ContiguousProduct::prepare(Sgemm *problem)
{
    *problem = given_;
    Status status = A_.prepare(true, &problem->A);
    if (status.code == STATUS_OK) {
        status = B_.prepare(true, &problem->B);
    }
    return status.code == STATUS_OK ? C_.prepare(given_.beta != 0.0f, &problem->C) : status;
}

Status launch_contiguous(const Variant *variant, const Sgemm *problem, const Launch *where,
                         int64_t *launched)
{
    if (!variant->spec.contiguous) {
        return variant_launch(variant, DEVICE_CUDA, problem, where, launched);
    }
    /* An operand that all products share is copied once. */
    Contiguous A(problem->A, where), B(problem->B, where);
    Sgemm batch = *problem;
    Status status = variant_fits(&variant->spec, batch.C.rows, batch.C.cols, batch.A.cols);
    if (status.code == STATUS_OK && batch.A.batch_stride == 0) {
        status = A.prepare(true, &batch.A);
    }
    if (status.code == STATUS_OK && batch.B.batch_stride == 0) {
        status = B.prepare(true, &batch.B);
    }
    while (*launched < batch.count && status.code == STATUS_OK) {
        if (*launched > 0 && interrupt_raised(where->interrupt)) {
            return status_error(STATUS_INTERRUPTED, "interrupted");
        }
        status = launch_one(variant, part_of_batch(&batch, *launched, 1), where);
        *launched += status.code == STATUS_OK;
    }
    return status;
}
