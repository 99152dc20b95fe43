/* A small product: what a copy costs counts, and not its bytes. */
#include "../core/device.h"
#include "allocator.h"
#include "device_matrix.h"
#include "failures.h"
#include "host_arrays.h"
#include "staging.h"

namespace {

constexpr int64_t element = sizeof(float);
/* Up to here a kernel writes its results to the host's memory itself. What it reads it waits for, so
 * to read there takes longer than a copy: 0.117 ms against 0.034 for a call at 64 on an H100. */
constexpr int64_t written_bytes = int64_t{1} << 16;

/* A matrix behind `offset` bytes, which move on. */
Matrix place(const Strided &array, bool by_columns, char *memory, size_t *offset)
{
    const Matrix matrix =
        matrix_in(memory ? memory + *offset : nullptr, array.rows, array.cols, by_columns);
    const int64_t lines = by_columns ? matrix.cols : matrix.rows;
    *offset = aligned(*offset + static_cast<size_t>(
                                    lines * (matrix.row_stride + matrix.col_stride - 1) * element));
    return matrix;
}

/* Where the operands are in a piece of memory, one after another, and how much they take. */
size_t place_all(const Product *product, char *memory, Sgemm *problem, size_t *before_c)
{
    size_t offset = 0;
    problem->A = place(product->A, is_column_major(&product->A), memory, &offset);
    problem->B = place(product->B, is_column_major(&product->B), memory, &offset);
    *before_c = offset;
    problem->C = place(product->out, false, memory, &offset);
    return offset;
}

/* Whether kernels of a device reach pinned memory by the host's addresses of it. */
bool writes_to_host(int device)
{
    enum { UNKNOWN, NO, YES };
    static int answers[most_devices];
    int answer = __atomic_load_n(&answers[device], __ATOMIC_RELAXED);
    if (answer == UNKNOWN) {
        int can = 0;
        cudaDeviceGetAttribute(&can, cudaDevAttrCanUseHostPointerForRegisteredMem, device);
        cudaGetLastError();
        answer = can ? YES : NO;
        __atomic_store_n(&answers[device], answer, __ATOMIC_RELAXED);
    }
    return answer == YES;
}
/* Queues the product of staged operands, of which `in` bytes are copied to memory of the GPU. */
Status queue(const Product *product, const char *staged, size_t in, const Sgemm *there,
             void *memory, const Matrix *copied_out, cudaStream_t stream)
{
    const Launch where = {product->device, stream, nullptr, nullptr, false};
    Status status =
        in == 0
            ? status_ok()
            : device_checked(product->device, "copying from the host",
                             cudaMemcpyAsync(memory, staged, in, cudaMemcpyHostToDevice, stream));
    if (status.code == STATUS_OK) {
        status = product->variant->launch[DEVICE_CUDA](there, &where);
    }
    if (status.code == STATUS_OK && copied_out) {
        status = device_checked(
            product->device, "copying to the host",
            device_matrix_copy(copied_out, &there->C, cudaMemcpyDeviceToHost, stream));
    }
    return status;
}

/* Waits for all that was queued, so that its memory may be given back. */
Status drain(int device, cudaStream_t stream, Status status)
{
    if (status.code == STATUS_OK) {
        status = device_checked(device, "computing", cudaStreamSynchronize(stream));
    }
    if (status.code != STATUS_OK) {
        /* Again, since one may fail for a reason of its own. */
        device_checked(device, "computing", cudaStreamSynchronize(stream));
        device_checked(device, "computing", device_wait());
    }
    return status;
}

/* Gathers the operands into staging memory, and multiplies them in as much memory of the GPU. */
Status multiply_in(const Product *product, const Staging *staging, void *memory,
                   cudaStream_t stream)
{
    Sgemm staged = {}, there = {};
    size_t before_c;
    const size_t bytes = place_all(product, staging->memory, &staged, &before_c);
    place_all(product, static_cast<char *>(memory), &there, &before_c);
    const Strided a = strided_of_matrix(&staged.A), b = strided_of_matrix(&staged.B),
                  c = strided_of_matrix(&staged.C);
    strided_copy(&a, &product->A);
    strided_copy(&b, &product->B);
    if (product->beta != 0.0f) {
        strided_copy(&c, &product->C);
    }
    Matrix reached;
    const bool direct = reach(&product->out, false, &reached);
    const Matrix out = direct ? reached : staged.C;
    const bool written = product->beta == 0.0f && (direct || staging->pinned) &&
                         out.rows * out.cols * element <= written_bytes &&
                         writes_to_host(product->device);
    there.C = written ? out : there.C;
    there.alpha = product->alpha;
    there.beta = product->beta;
    const size_t in = product->beta == 0.0f ? before_c : bytes;
    const Status queued =
        queue(product, staging->memory, in, &there, memory, written ? nullptr : &out, stream);
    const Status status = drain(product->device, stream, queued);
    if (status.code == STATUS_OK && !direct) {
        strided_copy(&product->out, &c);
    }
    return status;
}

} // namespace

Status multiply_small(const Product *product, Streams *streams)
{
    Sgemm unused;
    size_t before_c;
    const size_t bytes = place_all(product, nullptr, &unused, &before_c);
    Staging staging = {};
    void *memory = nullptr;
    if (!take_staging(product->device, bytes, &staging)) {
        return no_staging(bytes);
    }
    Status status = allocator_take(product->device, bytes, streams->run, &memory);
    if (status.code == STATUS_OK) {
        status = multiply_in(product, &staging, memory, streams->run);
    }
    allocator_give(product->device, memory);
    give_staging(&staging);
    return status;
}
