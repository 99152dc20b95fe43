/* Small products, and batches of them: the number of copies sets the time, not their size. */
#include "../../base/cuda/allocator.h"
#include "../../base/cuda/failures.h"
#include "../device.h"
#include "../workers.h"
#include "contiguous.h"
#include "device_matrix.h"
#include "host_arrays.h"
#include "staging.h"

namespace {

constexpr int64_t element = sizeof(float); /* of the result */
/* Up to this size, the kernel writes the result directly to host memory. Operands are copied, since
 * kernels wait for their loads: at 64 on an H100 a call that reads host memory takes 0.117 ms, a
 * call with a copy 0.034 ms. */
constexpr int64_t written_bytes = int64_t{1} << 16;

/* The matrices of a batch that differ. */
int64_t count_of(const Product *product, const Strided &array)
{
    return array.batch_bytes == 0 ? 1 : product->count;
}

/* Places an operand's matrices, or the results, at `offset` bytes and advances the offset. They get
 * elements of that type. A kernel that takes contiguous matrices gets them so. */
Matrix place(const Product *product, const Strided &array, ElementType type, int64_t count,
             char *memory, size_t *offset)
{
    const bool contiguous = product->variant->spec.contiguous;
    const bool by_columns = !contiguous && &array != &product->out && is_column_major(&array);
    const int64_t lines = by_columns ? array.cols : array.rows;
    const int64_t length = by_columns ? array.rows : array.cols;
    const int64_t ld = contiguous ? length : leading_dimension_in(type, count, length);
    const Matrix matrix = {reinterpret_cast<float *>(memory ? memory + *offset : nullptr),
                           array.rows,
                           array.cols,
                           by_columns ? 1 : ld,
                           by_columns ? ld : 1,
                           count > 1 ? lines * ld : 0};
    *offset = aligned(*offset + static_cast<size_t>(count * lines * ld * element_bytes(type)));
    return matrix;
}

/* Places all operands one after another in `memory` and returns their total size. */
size_t place_all(const Product *product, char *memory, Sgemm *problem, size_t *before_c)
{
    size_t offset = 0;
    problem->A = place(product, product->A, product->taken[0], count_of(product, product->A),
                       memory, &offset);
    problem->B = product_is_symmetric(product)
                     ? matrix_transposed(&problem->A)
                     : place(product, product->B, product->taken[1], count_of(product, product->B),
                             memory, &offset);
    *before_c = offset;
    problem->C = place(product, product->out, ELEMENT_FLOAT32, product->count, memory, &offset);
    return offset;
}

/* True if kernels can access pinned memory through its host addresses. */
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

/* The contiguous matrices of a batch as one matrix. */
Matrix all_rows(const Matrix &C, int64_t count)
{
    return {C.data, C.rows * count, C.cols, C.row_stride, C.col_stride};
}

/* Copies `in` bytes of staged operands to the GPU and queues the product. */
Status queue(const Product *product, const char *staged, size_t in, const Sgemm *there,
             void *memory, const Matrix *copied_out, cudaStream_t stream)
{
    Launch where = {product->device, stream, &product->interrupt, {}, false};
    where.elements[0] = product->taken[0];
    where.elements[1] = product->taken[1];
    Status status =
        in == 0
            ? status_ok()
            : device_checked(product->device, "copying from the host",
                             cudaMemcpyAsync(memory, staged, in, cudaMemcpyHostToDevice, stream));
    if (status.code == STATUS_OK) {
        int64_t launched = 0;
        status = launch_contiguous(product->variant, there, &where, &launched);
    }
    if (status.code == STATUS_OK && copied_out) {
        const Matrix results = all_rows(there->C, product->count);
        status = device_checked(
            product->device, "copying to the host",
            device_matrix_copy(copied_out, &results, cudaMemcpyDeviceToHost, stream));
    }
    return status;
}

/* Waits for all queued work, so that its memory can be released. */
Status drain(int device, cudaStream_t stream, Status status)
{
    if (status.code == STATUS_OK) {
        status = device_checked(device, "computing", cudaStreamSynchronize(stream));
    }
    if (status.code != STATUS_OK) {
        /* Wait again, since a wait itself may fail. */
        device_checked(device, "computing", cudaStreamSynchronize(stream));
        device_checked(device, "computing", device_wait());
    }
    return status;
}

/* Copies an operand. A small product's is copied by the calling thread. */
void gather(const Product *product, const Strided &from, const Strided &to)
{
    if (to.batch_bytes == 0) {
        strided_copy(&to, &from);
    } else {
        workers_copy_batch(&to, &from, product->count, nullptr);
    }
}

/* Gathers the operands in staging memory and multiplies them in GPU memory of the same size. */
Status multiply_in(const Product *product, const Staging *staging, void *memory,
                   cudaStream_t stream)
{
    Sgemm staged = {}, there = {};
    size_t before_c;
    const size_t bytes = place_all(product, staging->memory, &staged, &before_c);
    place_all(product, static_cast<char *>(memory), &there, &before_c);
    const Strided a = strided_of_typed(&staged.A, product->taken[0]),
                  b = strided_of_typed(&staged.B, product->taken[1]),
                  c = strided_of_matrix(&staged.C);
    gather(product, product->A, a);
    if (!product_is_symmetric(product)) {
        gather(product, product->B, b);
    }
    if (product->beta != 0.0f) {
        gather(product, product->C, c);
    }
    Matrix host;
    Strided results;
    const bool direct = strided_join(&product->out, product->count, &results) &&
                        as_pinned_matrix(&results, false, &host);
    const Matrix out = direct ? host : all_rows(staged.C, product->count);
    const bool written = product->beta == 0.0f && (direct || staging->pinned) &&
                         product->count == 1 && out.rows * out.cols * element <= written_bytes &&
                         writes_to_host(product->device);
    there.C = written ? out : there.C;
    there.alpha = product->alpha;
    there.beta = product->beta;
    there.count = product->count;
    const size_t in = product->beta == 0.0f ? before_c : bytes;
    if (direct) {
        product_changes_out(product);
    }
    const Status queued =
        queue(product, staging->memory, in, &there, memory, written ? nullptr : &out, stream);
    const Status status = drain(product->device, stream, queued);
    if (status.code == STATUS_OK && !direct) {
        product_changes_out(product);
        gather(product, c, product->out);
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
    if (!alloc_staging(product->device, bytes, &staging)) {
        return no_staging(bytes);
    }
    Status status = allocator_alloc(product->device, bytes, streams->run, &memory);
    if (status.code == STATUS_OK) {
        status = multiply_in(product, &staging, memory, streams->run);
    }
    allocator_free(product->device, memory);
    free_staging(&staging);
    return status;
}
