#include "rows_on_gpus.h"

#include <stdlib.h>

#include <algorithm>
#include <atomic>

#include "../catalog.h"
#include "../division.h"
#include "device_matrix.h"
#include "peers.h"
#include "stream_scope.h"

namespace {

/* The rows that another GPU computes, from copies of the operands. */
struct Part {
    StreamScope scope;
    Sgemm there;
};

Matrix rows_of(const Matrix &matrix, int64_t first, int64_t count)
{
    return {matrix.data + first * matrix.row_stride, count, matrix.cols, matrix.row_stride,
            matrix.col_stride};
}

/* Queues a copy between GPUs. See device_matrix_copy. */
Status send(const Part &part, const Matrix &to, const Matrix &from)
{
    return scope_checked(&part.scope, "copying between GPUs",
                         device_matrix_copy(&to, &from, cudaMemcpyDefault, stream_of(&part.scope)));
}

/* Allocates a matrix on the part's GPU and, if `filled`, queues the copy of its contents. */
Status fetch(Part *part, Matrix *copy, const Matrix &from, bool filled)
{
    const Status status = device_matrix_allocate(part->scope.device, from.rows, from.cols,
                                                 from.col_stride != 1, copy);
    return status.code == STATUS_OK && filled ? send(*part, *copy, from) : status;
}

/* Queues one part. Call finish_part afterwards, even if this fails. */
Status begin_part(Part *part, const Sgemm &rows, const Variant *variant, cudaEvent_t operands_ready)
{
    Status status = scope_checked(&part->scope, "waiting for the operands' GPU",
                                  cudaStreamWaitEvent(stream_of(&part->scope), operands_ready, 0));
    if (status.code == STATUS_OK) {
        status = fetch(part, &part->there.B, rows.B, true);
    }
    if (status.code == STATUS_OK) {
        status = fetch(part, &part->there.A, rows.A, true);
    }
    if (status.code == STATUS_OK) {
        status = fetch(part, &part->there.C, rows.C, rows.beta != 0.0f);
    }
    if (status.code == STATUS_OK) {
        status = scope_launch(&part->scope, variant, &part->there);
    }
    return status.code == STATUS_OK ? send(*part, rows.C, part->there.C) : status;
}

Status finish_part(Part *part)
{
    const Status status = scope_finish(&part->scope, "computing");
    device_matrix_release(part->scope.device, &part->there.A);
    device_matrix_release(part->scope.device, &part->there.B);
    device_matrix_release(part->scope.device, &part->there.C);
    scope_leave(&part->scope);
    return status;
}

/* Fitted to calls of auto at 4096 and 8192, with copies of 96e9 floats per second over NVLink. In
 * addition to copies and arithmetic, one helping H200 cost 0.16 and 0.21 ms
 * (benchmarks/results/h200/all_gpus.json), and three cost 0.22 and 0.29 ms. */
constexpr double seconds_if_helped = 125e-6, seconds_a_helper = 35e-6;

/* Cycles per second, summed over all multiprocessors. Cached per device, since querying the clock
 * takes the driver half a millisecond. */
double cycles_a_second(int device)
{
    static std::atomic<double> known[most_devices];
    double cycles = known[device];
    if (cycles == 0) {
        int multiprocessors = 0, clock_khz = 0;
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
        cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device);
        cudaGetLastError();
        cycles = multiprocessors * (clock_khz * 1e3);
        known[device] = cycles;
    }
    return cycles;
}

/* Chooses how many other devices help devices[0], and the number of rows of each. */
Division choose_division(const Variant *variant, const Sgemm *problem, const int *devices,
                         int count)
{
    int capability[2];
    cuda_device.compute_capability(devices[0], capability);
    const double rate =
        cycles_a_second(devices[0]) * catalog_multiply_adds(variant, capability, problem->A.cols);
    DivisionCosts costs = {0, rate * seconds_if_helped, rate * seconds_a_helper};
    if (division_choose(problem, count - 1, &costs).others == 0) {
        return {0, 0}; /* does not pay off even if copies are free, so they need not be measured */
    }
    const Matrix &B = problem->B;
    const int64_t floats = (B.rows - 1) * B.row_stride + (B.cols - 1) * B.col_stride + 1;
    for (int other = 1; other < count; ++other) {
        const double floats_a_second = peers_floats_a_second(
            devices[0], devices[other], B.data, static_cast<size_t>(floats) * sizeof(float));
        if (floats_a_second == 0) {
            return {0, 0};
        }
        costs.copied_float = std::max(costs.copied_float, rate / floats_a_second);
    }
    return division_choose(problem, count - 1, &costs);
}

} // namespace

Status launch_on_gpus(StreamScope *scope, const Variant *variant, const Sgemm *whole,
                      const int *devices, int count)
{
    const Sgemm &problem = *whole;
    const Division division = choose_division(variant, whole, devices, count);
    if (division.others == 0) {
        return scope_launch(scope, variant, &problem);
    }
    const int64_t rows_each = division.rows;
    count = division.others + 1;
    Part *const parts = static_cast<Part *>(calloc(static_cast<size_t>(count), sizeof(Part)));
    cudaEvent_t operands_ready = nullptr;
    Status status =
        parts ? scope_checked(scope, "creating an event",
                              cudaEventCreateWithFlags(&operands_ready, cudaEventDisableTiming))
              : status_error(STATUS_OUT_OF_MEMORY, "no host memory to divide a product among GPUs");
    if (status.code == STATUS_OK) {
        status = scope_checked(scope, "recording an event after the operands",
                               cudaEventRecord(operands_ready, stream_of(scope)));
    }
    int64_t row = problem.C.rows - rows_each * (count - 1);
    Sgemm rows = problem;
    rows.A = rows_of(problem.A, 0, row);
    rows.C = rows_of(problem.C, 0, row);
    if (status.code == STATUS_OK) {
        status = scope_launch(scope, variant, &rows);
    }
    int begun = 1;
    for (; begun < count && status.code == STATUS_OK; ++begun, row += rows_each) {
        Part *const part = &parts[begun];
        status = scope_enter(devices[begun], nullptr, &part->scope);
        if (status.code != STATUS_OK) {
            break;
        }
        rows.A = rows_of(problem.A, row, rows_each);
        rows.C = rows_of(problem.C, row, rows_each);
        part->there.alpha = rows.alpha;
        part->there.beta = rows.beta;
        part->there.count = 1;
        status = begin_part(part, rows, variant, operands_ready);
    }
    while (begun > 1) {
        const Status finished = finish_part(&parts[--begun]);
        status = status.code == STATUS_OK ? finished : status;
    }
    if (operands_ready) {
        cudaEventDestroy(operands_ready);
    }
    free(parts);
    return status;
}
