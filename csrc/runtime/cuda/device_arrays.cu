#include "device_arrays.h"

#include <stdio.h>
#include <stdlib.h>

#include "../batch.h"
#include "../catalog.h"
#include "../many.h"
#include "device_buffer.h"
#include "rows_on_gpus.h"
#include "session.h"
#include "stream_scope.h"

namespace {

/* True for GPU memory and managed memory. */
bool is_on_gpu(const cudaPointerAttributes &attributes)
{
#ifdef SGEMM_HIP
    return attributes.HIP_MEMORY_TYPE == hipMemoryTypeDevice || attributes.isManaged;
#else
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
#endif
}

Status device_of(const void *address, int *device)
{
    cudaPointerAttributes attributes;
    *device = -1;
    const Status reachable = cuda_reachable();
    if (reachable.code != STATUS_OK) {
        return reachable;
    }
    const cudaError_t error = cudaPointerGetAttributes(&attributes, address);
#ifdef SGEMM_HIP
    if (error == cudaErrorInvalidValue) { /* not allocated by HIP */
        cudaGetLastError();
        return status_ok();
    }
#endif
    if (error != cudaSuccess) {
        cudaGetLastError(); /* clears an error that is not sticky */
        return status_error(STATUS_DEVICE, "looking up the device of address %p failed: %s (%s)",
                            address, cudaGetErrorString(error), cudaGetErrorName(error));
    }
    if (is_on_gpu(attributes)) {
        *device = attributes.device;
    }
    return status_ok();
}

/* ------------------------------------------------------------------ memory */

/* Allocates a contiguous row-major rows x cols matrix, with elements of that type. */
Status take_matrix(StreamScope *scope, int64_t rows, int64_t cols, Matrix *matrix,
                   ElementType type = ELEMENT_FLOAT32)
{
    const int64_t size = element_bytes(type), most = PTRDIFF_MAX / size;
    const size_t bytes =
        rows > 0 && cols > most / rows ? PTRDIFF_MAX : static_cast<size_t>(rows * cols * size);
    void *memory = nullptr;
    const Status status = scope_alloc(scope, bytes, &memory);
    *matrix = {static_cast<float *>(memory), rows, cols, cols, 1};
    return status.code != STATUS_OUT_OF_MEMORY
               ? status
               : status_error(STATUS_OUT_OF_MEMORY,
                              "cannot allocate a %lld x %lld %s matrix: %.330s; or pass NumPy "
                              "arrays, which are processed in panels",
                              static_cast<long long>(rows), static_cast<long long>(cols),
                              type == ELEMENT_FLOAT32 ? "float32" : "16-bit", status.message);
}

/* Creates a buffer for a rows x cols matrix of that type, with one owner. On failure *made is
 * NULL. */
Status make_buffer(StreamScope *scope, int64_t rows, int64_t cols, DeviceBuffer **made,
                   ElementType type = ELEMENT_FLOAT32)
{
    *made = static_cast<DeviceBuffer *>(calloc(1, sizeof **made));
    if (!*made) {
        return status_error(STATUS_OUT_OF_MEMORY, "no host memory for the record of a GPU matrix");
    }
    (*made)->device = scope->device;
    (*made)->type = type;
    (*made)->owners = 1;
    const Status status = take_matrix(scope, rows, cols, &(*made)->matrix, type);
    if (status.code != STATUS_OK) {
        free(*made);
        *made = nullptr;
    }
    return status;
}

/* ------------------------------------------------------------------ one product */

/* True if rows (or columns) do not overlap, as copy engines and cuBLAS require. */
bool lines_in_order(const Matrix &matrix)
{
    return matrix.col_stride == 1 ? matrix.rows <= 1 || matrix.row_stride >= matrix.cols
                                  : matrix.cols <= 1 || matrix.col_stride >= matrix.rows;
}

Status refuse_capture(const char *what, const char *instead)
{
    return status_error(STATUS_INVALID,
                        "the stream is being captured into a " GPU_API
                        " graph, which cannot own the "
                        "memory for %s: %s",
                        what, instead);
}

/* Allocates a copy of an operand or the result, of `count` matrices with elements of that type.
 * Refused during a capture. */
Status take_copy(StreamScope *scope, const char *name, const Strided &array, int64_t count,
                 Matrix *copy, ElementType type = ELEMENT_FLOAT32)
{
    if (scope->captured) {
        char what[64], instead[128];
        snprintf(what, sizeof what, "a copy of %s", name);
        snprintf(instead, sizeof instead, "pass %s %s", name,
                 array.type == type
                     ? "with contiguous rows or columns and without overlap with the others"
                     : "as float32, as the other operand or the variant needs it");
        return refuse_capture(what, instead);
    }
    const Status status = take_matrix(scope, array.rows * count, array.cols, copy, type);
    copy->rows = array.rows;
    copy->batch_stride = count > 1 ? array.rows * array.cols : 0;
    return status;
}

/* Copies the matrices of a batch. */
Status copy_batch(StreamScope *scope, const Strided &to, const Strided &from, int64_t count)
{
    Strided all_to, all_from;
    if (strided_join(&to, count, &all_to) && strided_join(&from, count, &all_from)) {
        return scope_copy(scope, &all_to, &all_from);
    }
    Status status = status_ok();
    for (int64_t n = 0; n < count && status.code == STATUS_OK; ++n) {
        Strided one_to = to, one_from = from;
        one_to.data += n * to.batch_bytes;
        one_from.data += n * from.batch_bytes;
        status = scope_copy(scope, &one_to, &one_from);
    }
    return status;
}

/* The array as a matrix of elements of that type: in place if every variant can read it there,
 * otherwise a copy. If the batch shares the array, there is one copy. */
Status take_operand(StreamScope *scope, const char *name, const Strided &array, ElementType type,
                    int64_t count, Matrix *matrix, Matrix *copy)
{
    if (strided_as_typed(&array, type, matrix) && lines_in_order(*matrix)) {
        return status_ok();
    }
    count = array.batch_bytes == 0 ? 1 : count;
    const Status status = take_copy(scope, name, array, count, copy, type);
    if (status.code != STATUS_OK) {
        return status;
    }
    *matrix = *copy;
    return copy_batch(scope, strided_of_typed(copy, type), array, count);
}

/* Temporary copies for a product; data is NULL for those not needed. */
struct Copies {
    Matrix A, B, C;
};

/* Launches a product, or each of a batch, on several GPUs. */
Status launch_each(StreamScope *scope, const Product &product, const Sgemm &problem,
                   const int *devices, int count)
{
    Status status = status_ok();
    for (int64_t n = 0; n < problem.count && status.code == STATUS_OK; ++n) {
        const Sgemm one = part_of_batch(&problem, n, 1);
        status = launch_on_gpus(scope, product.variant, &one, devices, count);
    }
    return status;
}

/* A product whose operands every variant can read. */
struct Ready {
    Sgemm problem;
    Copies copies;
    bool direct;  // the kernel writes the result to `out`; otherwise to a copy
    Matrix added; // C if the kernel reads it where it is; data is NULL otherwise
};

void give_copies(StreamScope *scope, Copies *copies)
{
    for (Matrix *const copy : {&copies->A, &copies->B, &copies->C}) {
        scope_free(scope, copy->data);
        copy->data = nullptr;
    }
}

/* Prepares a product, or a batch of product.count. With `separate`, the result goes to a copy
 * first. With `reads_addend`, C need not be copied to the result. */
Status make_ready(StreamScope *scope, const Product &product, bool separate, bool reads_addend,
                  Ready *ready)
{
    Sgemm &problem = ready->problem;
    Copies *const copies = &ready->copies;
    problem = {};
    problem.alpha = product.alpha;
    problem.beta = product.beta;
    problem.count = product.count;
    Status status = take_operand(scope, "A", product.A, product.taken[0], product.count, &problem.A,
                                 &copies->A);
    if (status.code == STATUS_OK && copies->A.data && product_is_symmetric(&product)) {
        problem.B = matrix_transposed(&problem.A);
    } else if (status.code == STATUS_OK) {
        status = take_operand(scope, "B", product.B, product.taken[1], product.count, &problem.B,
                              &copies->B);
    }
    if (status.code != STATUS_OK) {
        return status;
    }
    const bool direct = !separate && strided_as_matrix(&product.out, &problem.C) &&
                        problem.C.col_stride == 1 && lines_in_order(problem.C);
    ready->direct = direct;
    if (!direct) {
        status = take_copy(scope, "out", product.out, product.count, &copies->C);
        if (status.code != STATUS_OK) {
            return status;
        }
        problem.C = copies->C;
    }
    if (direct) {
        product_changes_out(&product);
    }
    if (product.beta != 0.0f && !(direct && product_is_in_place(&product)) &&
        !(reads_addend && strided_as_addend(&product.C, &ready->added))) {
        status = copy_batch(scope, strided_of_matrix(&problem.C), product.C, product.count);
    }
    return status;
}

/* What copies C to the result. */
struct AddendCopy {
    StreamScope *scope;
    const Product *product;
    const Matrix *result;
};

Status copy_addend(void *context, int64_t first, int64_t count)
{
    const auto *const copy = static_cast<const AddendCopy *>(context);
    const Strided begun = strided_of_matrix(copy->result);
    return copy_batch(copy->scope, strided_in_batch(&begun, first),
                      strided_in_batch(&copy->product->C, first), count);
}

Status launch_with_addend(StreamScope *scope, const Product &product, const Ready &ready)
{
    AddendCopy copy = {scope, &product, &ready.problem.C};
    const Addend addend = {ready.added, 0, copy_addend, &copy};
    return scope_launch(scope, product.variant, &ready.problem,
                        ready.added.data ? &addend : nullptr, product.taken);
}

/* Copies the result to `out` if it is not there. */
Status hand_over(StreamScope *scope, const Product &product, const Ready &ready)
{
    if (ready.direct) {
        return status_ok();
    }
    product_changes_out(&product);
    return copy_batch(scope, product.out, strided_of_matrix(&ready.problem.C), product.count);
}

/* Computes a product, or a batch of product.count. `out` overlaps no operand but a C in place. */
Status compute(StreamScope *scope, const Product &given, const int *devices, int count,
               Copies *copies)
{
    const Product product = count > 1 ? given : product_typed(&given, scope->device);
    Ready ready = {};
    const bool reads_addend = count == 1 && product.variant->spec.reads_addend;
    Status status = make_ready(scope, product, false, reads_addend, &ready);
    *copies = ready.copies;
    if (status.code == STATUS_OK) {
        status = count > 1 ? launch_each(scope, product, ready.problem, devices, count)
                           : launch_with_addend(scope, product, ready);
    }
    return status.code == STATUS_OK ? hand_over(scope, product, ready) : status;
}

/* Computes all products. The last copies stay in *copies until the scope's work is noted. */
Status compute_all(StreamScope *scope, const Product &product, const Batch &batch,
                   const int *devices, int count, Copies *copies)
{
    const int64_t products = batch_count(&batch);
    Status status = status_ok();
    for (int64_t n = 0; n < products && status.code == STATUS_OK; ++n) {
        if (n > 0 && count > 1) {
            status = scope_finish(scope, "computing");
        }
        if (n > 0 && !scope->captured) {
            give_copies(scope, copies);
        }
        status = status.code == STATUS_OK
                     ? compute(scope, batch_product(&product, &batch, n), devices, count, copies)
                     : status;
    }
    return status;
}

/* The same with the results in a separate buffer, which is then copied to out. */
Status compute_separately(StreamScope *scope, const Product &product, const Batch &batch,
                          const int *devices, int count, Copies *copies)
{
    Matrix memory;
    Strided stack = product.out;
    const int64_t products = batch_count(&batch);
    Status status = take_copy(scope, "out", stack, products, &memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    Product separate = product;
    separate.out_changed = nullptr;
    Batch contiguous = batch;
    batch_add_contiguous(memory.data, &separate, &contiguous);
    Product simple = separate;
    Batch simple_batch = contiguous;
    batch_simplify(&simple, &simple_batch);
    status = compute_all(scope, simple, simple_batch, devices, count, copies);
    if (status.code == STATUS_OK) {
        product_changes_out(&product);
    }
    for (int64_t n = 0; n < products && status.code == STATUS_OK; ++n) {
        const Strided to = batch_product(&product, &batch, n).out,
                      from = batch_product(&separate, &contiguous, n).out;
        status = scope_copy(scope, &to, &from);
    }
    scope_free(scope, memory.data);
    return status;
}

/* Fails if the stream's capture status changed because an operand's stream is being captured. */
Status ask_for_capture(StreamScope *scope)
{
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const Status status = scope_checked(scope, "querying the capture status of the stream",
                                        cudaStreamIsCapturing(stream_of(scope), &capture));
    const bool captured = capture != cudaStreamCaptureStatusNone;
    if (status.code != STATUS_OK || captured == scope->captured) {
        return status;
    }
    return scope_refuse_capture();
}

Status run(StreamScope *scope, const Product *wanted, const Batch *wanted_batch, const int *devices,
           int count, DeviceBuffer **result)
{
    Product product = product_as_read(wanted);
    Batch batch = *wanted_batch;
    DeviceBuffer *made = nullptr;
    Copies copies = {};
    product.count = 1;
    Status status = ask_for_capture(scope);
    const int64_t products = batch_count(&batch);
    if (status.code == STATUS_OK && !product.out.data) {
        int64_t rows = 0;
        const bool fits = !__builtin_mul_overflow(products, product.A.rows, &rows);
        status = scope->captured
                     ? refuse_capture("a new array", "pass out=, an array that you keep as long "
                                                     "as the graph")
                     : make_buffer(scope, fits ? rows : INT64_MAX, product.B.cols, &made);
        if (made) {
            scope_add(scope, made, true);
            batch_add_contiguous(made->matrix.data, &product, &batch);
        }
    }
    if (status.code == STATUS_OK && product.out.rows > 0 && product.out.cols > 0 && products > 0) {
        if (batch_must_wait(&product, &batch)) {
            status = compute_separately(scope, product, batch, devices, count, &copies);
        } else {
            batch_simplify(&product, &batch);
            status = compute_all(scope, product, batch, devices, count, &copies);
        }
    }
    if (scope->captured) {
        return status;
    }
    if (scope->streams || count > 1 || status.code != STATUS_OK) {
        const Status finished = scope_finish(scope, "computing");
        status = status.code == STATUS_OK ? finished : status;
    } else {
        status = buffers_note(scope);
    }
    give_copies(scope, &copies);
    if (made && status.code != STATUS_OK) {
        buffer_drop(made);
    } else if (made) {
        *result = made;
    }
    return status;
}

/* ------------------------------------------------------------------ many products */

/* Allocates the result of a product that has no `out`. */
Status make_out(StreamScope *scope, Product *product, DeviceBuffer **made)
{
    if (scope->captured) {
        return refuse_capture("a new array",
                              "pass out=, arrays that you keep as long as the graph");
    }
    const Status status = make_buffer(scope, product->A.rows, product->B.cols, made);
    if (*made) {
        Batch none = {};
        scope_add(scope, *made, true);
        batch_add_contiguous((*made)->matrix.data, product, &none);
    }
    return status;
}

/* What run_many needs for each of `count` products. */
struct Many {
    int64_t count;
    Product *products; // as they are read; empty ones come last
    Ready *ready;
    Sgemm *problems;
    bool *waits;
};

void free_many(Many *many)
{
    free(many->products);
    free(many->ready);
    free(many->problems);
    free(many->waits);
}

Status allocate_many(int64_t count, Many *many)
{
    const auto size = static_cast<size_t>(count + !count);
    *many = {count, static_cast<Product *>(calloc(size, sizeof(Product))),
             static_cast<Ready *>(calloc(size, sizeof(Ready))),
             static_cast<Sgemm *>(calloc(size, sizeof(Sgemm))),
             static_cast<bool *>(calloc(size, sizeof(bool)))};
    if (many->products && many->ready && many->problems && many->waits) {
        return status_ok();
    }
    free_many(many);
    return status_error(STATUS_OUT_OF_MEMORY, "no host memory for a list of %lld products",
                        static_cast<long long>(count));
}

/* Computes products that are not empty. With one GPU, those with operands of 16 bits have a
 * launch each. */
Status compute_many(StreamScope *scope, const Many &many, const int *devices, int gpus)
{
    const Variant *const variant = many.products->variant;
    Status status = many_find_waiting(many.products, many.count, many.waits);
    int64_t together = 0;
    for (int64_t n = 0; n < many.count && status.code == STATUS_OK; ++n) {
        Product *const product = &many.products[n];
        *product = gpus > 1 ? *product : product_typed(product, scope->device);
        status = make_ready(scope, *product, many.waits[n], false, &many.ready[n]);
        const Sgemm *const problem = &many.ready[n].problem;
        if (gpus > 1 || product->variant == variant) {
            many.problems[together++] = *problem;
        } else if (status.code == STATUS_OK) {
            status = scope_launch(scope, product->variant, problem, nullptr, product->taken);
        }
    }
    if (status.code == STATUS_OK && gpus == 1 && together > 0) {
        status = scope_launch_many(scope, variant, many.problems, together);
    }
    for (int64_t n = 0; n < many.count && status.code == STATUS_OK && gpus > 1; ++n) {
        status = launch_each(scope, many.products[n], many.problems[n], devices, gpus);
        const Status finished = scope_finish(scope, "computing");
        status = status.code == STATUS_OK ? finished : status;
    }
    for (int64_t n = 0; n < many.count && status.code == STATUS_OK; ++n) {
        status = hand_over(scope, many.products[n], many.ready[n]);
    }
    return status;
}

Status run_many(StreamScope *scope, const Product *products, int64_t count, const int *devices,
                int gpus, DeviceBuffer **results)
{
    Many many;
    Status status = ask_for_capture(scope);
    if (status.code == STATUS_OK) {
        status = allocate_many(count, &many);
    }
    if (status.code != STATUS_OK) {
        return status;
    }
    many.count = 0;
    for (int64_t n = 0; n < count && status.code == STATUS_OK; ++n) {
        Product product = product_as_read(&products[n]);
        if (results && !product.out.data) {
            status = make_out(scope, &product, &results[n]);
        }
        if (product.out.rows > 0 && product.out.cols > 0) {
            many.products[many.count++] = product;
        }
    }
    if (status.code == STATUS_OK && many.count > 0) {
        status = compute_many(scope, many, devices, gpus);
    }
    if (!scope->captured) {
        Status finished = status_ok();
        if (scope->streams || gpus > 1 || status.code != STATUS_OK) {
            finished = scope_finish(scope, "computing");
        } else {
            finished = buffers_note(scope);
        }
        status = status.code == STATUS_OK ? finished : status;
        for (int64_t n = 0; n < many.count; ++n) {
            give_copies(scope, &many.ready[n].copies);
        }
        for (int64_t n = 0; n < count && status.code != STATUS_OK; ++n) {
            if (results && results[n]) {
                buffer_drop(results[n]);
                results[n] = nullptr;
            }
        }
    }
    free_many(&many);
    return status;
}

/* ------------------------------------------------------------------ prepared matrices */

/* Copies a matrix to a buffer that has its rows, or its columns. */
Status copy_to(StreamScope *scope, const Strided &from, bool on_host, const Matrix &to,
               ElementType type)
{
    const Strided there = strided_of_typed(&to, type);
    if (!on_host) {
        return scope_copy(scope, &there, &from);
    }
    const size_t bytes = static_cast<size_t>(to.rows * to.cols * element_bytes(type));
    Matrix staged = to;
    staged.data = static_cast<float *>(malloc(bytes + !bytes));
    if (!staged.data) {
        return status_error(STATUS_OUT_OF_MEMORY, "no host memory to copy a matrix from");
    }
    const Strided here = strided_of_typed(&staged, type);
    strided_copy(&here, &from);
    Status status = bytes == 0
                        ? status_ok()
                        : scope_checked(scope, "copying a matrix from the host",
                                        cudaMemcpyAsync(to.data, staged.data, bytes,
                                                        cudaMemcpyHostToDevice, stream_of(scope)));
    const Status finished = scope_finish(scope, "copying a matrix from the host");
    status = status.code == STATUS_OK ? finished : status;
    free(staged.data);
    return status;
}

/* The fp16 pairs of B, by a product of no rows of `waves`, which keeps them. */
Status split_by_product(StreamScope *scope, const Variant *waves, const Matrix &B,
                        Prepared *prepared)
{
    const Sgemm problem = {
        {B.data, 0, B.rows, B.rows, 1}, B, {B.data, 0, B.cols, B.cols, 1}, 1.0f, 0.0f};
    const Launch where = {scope->device, scope->stream, nullptr, {nullptr, prepared}, false};
    const Status launched = waves->launch[DEVICE_CUDA](&problem, &where);
    if (launched.code == STATUS_OK && prepared->ready) {
        return status_ok();
    }
    scope_free(scope, prepared->memory);
    return launched.code != STATUS_OK
               ? launched
               : status_error(STATUS_OUT_OF_MEMORY,
                              "cannot allocate the fp16 pairs of a %lld x %lld matrix: free memory "
                              "of " GPU_KIND ":%d",
                              static_cast<long long>(B.rows), static_cast<long long>(B.cols),
                              scope->device);
}

/* The fp16 pairs of a matrix in a new buffer. *pairs stays NULL if products with it have none. */
Status split(StreamScope *scope, const Matrix &B, DeviceBuffer **pairs)
{
    const Variant *const waves = catalog_find("waves");
    if (B.rows < WGMMA_MIN_K || B.cols == 0 ||
        device_can_run(waves, DEVICE_CUDA, scope->device).code != STATUS_OK) {
        return status_ok();
    }
    auto *const made = static_cast<DeviceBuffer *>(calloc(1, sizeof **pairs));
    if (!made) {
        return status_error(STATUS_OUT_OF_MEMORY, "no host memory for the record of a GPU matrix");
    }
    Prepared prepared = {};
    const Status status = split_by_product(scope, waves, B, &prepared);
    if (status.code != STATUS_OK) {
        free(made);
        return status;
    }
    // Padded to whole tiles; a pair has the size of a float.
    const int64_t rows = (B.cols + 127) / 128 * 128, cols = (B.rows + 63) / 64 * 64;
    made->matrix = {static_cast<float *>(prepared.memory), rows, cols, cols, 1};
    made->device = scope->device;
    made->owners = 1;
    *pairs = made;
    return status;
}

Status prepare(StreamScope *scope, const Strided *B, bool on_host, DeviceBuffer **copy,
               DeviceBuffer **pairs)
{
    const bool by_columns = is_column_major(B);
    const ElementType type =
        product_takes_16bit(DEVICE_CUDA, scope->device) ? B->type : ELEMENT_FLOAT32;
    DeviceBuffer *made = nullptr, *split_made = nullptr;
    Status status = by_columns ? make_buffer(scope, B->cols, B->rows, &made, type)
                               : make_buffer(scope, B->rows, B->cols, &made, type);
    if (status.code != STATUS_OK) {
        return status;
    }
    const int64_t pitch = made->matrix.cols;
    const Matrix there = {made->matrix.data, B->rows, B->cols, by_columns ? 1 : pitch,
                          by_columns ? pitch : 1};
    status = copy_to(scope, *B, on_host, there, type);
    if (status.code == STATUS_OK && type == ELEMENT_FLOAT32) {
        status = split(scope, there, &split_made);
    }
    const Status finished = scope_finish(scope, "preparing a matrix");
    status = status.code == STATUS_OK ? finished : status;
    if (status.code == STATUS_OK) {
        *copy = made;
        *pairs = split_made;
        return status;
    }
    buffer_drop(made);
    if (split_made) {
        buffer_drop(split_made);
    }
    return status;
}

/* ------------------------------------------------------------------ results */

Status download(DeviceBuffer *buffer, float *host)
{
    StreamScope scope;
    Status status = scope_enter(buffer->device, nullptr, &scope);
    if (status.code != STATUS_OK) {
        return status;
    }
    status = scope_use(&scope, buffer, false);
    if (status.code == STATUS_OK) {
        const size_t bytes =
            static_cast<size_t>(buffer->matrix.rows * buffer->matrix.cols) * sizeof(float);
        status = scope_checked(&scope, "copying to the host",
                               cudaMemcpyAsync(host, buffer->matrix.data, bytes,
                                               cudaMemcpyDeviceToHost, stream_of(&scope)));
    }
    const Status finished = scope_finish(&scope, "waiting for a result");
    scope_leave(&scope);
    return status.code == STATUS_OK ? finished : status;
}

Status duplicate(DeviceBuffer *buffer, DeviceBuffer **copy)
{
    StreamScope scope;
    Status status = scope_enter(buffer->device, nullptr, &scope);
    if (status.code != STATUS_OK) {
        return status;
    }
    DeviceBuffer *made = nullptr;
    status = scope_use(&scope, buffer, false);
    if (status.code == STATUS_OK) {
        status = make_buffer(&scope, buffer->matrix.rows, buffer->matrix.cols, &made);
    }
    if (status.code == STATUS_OK) {
        const Strided to = strided_of_matrix(&made->matrix),
                      from = strided_of_matrix(&buffer->matrix);
        status = scope_copy(&scope, &to, &from);
        const Status finished = scope_finish(&scope, "copying a result");
        status = status.code == STATUS_OK ? finished : status;
    }
    if (made && status.code != STATUS_OK) {
        buffer_drop(made);
    } else if (made) {
        *copy = made;
    }
    scope_leave(&scope);
    return status;
}

Status export_to(DeviceBuffer *buffer, void *stream)
{
    Status status = session_open(buffer->device);
    if (status.code == STATUS_OK) {
        status = buffer_export(buffer, static_cast<cudaStream_t>(stream));
        session_close();
    }
    return status;
}

bool is_ready(DeviceBuffer *buffer)
{
    if (session_open(buffer->device).code != STATUS_OK) {
        return false;
    }
    const bool ready = buffer_is_ready(buffer);
    session_close();
    return ready;
}

} // namespace

extern "C" Status cuda_queue(const Product *product, const Batch *batch, void *stream)
{
    StreamScope scope;
    Status status = scope_enter(product->device, stream, &scope);
    if (status.code == STATUS_OK) {
        status = run(&scope, product, batch, &product->device, 1, nullptr);
        scope_leave(&scope);
    }
    return status;
}

extern "C" Status cuda_queue_many(const Product *products, int64_t count, void *stream)
{
    StreamScope scope;
    const int device = products->device;
    Status status = scope_enter(device, stream, &scope);
    if (status.code == STATUS_OK) {
        status = run_many(&scope, products, count, &device, 1, nullptr);
        scope_leave(&scope);
    }
    return status;
}

extern const DeviceArrays cuda_arrays = {
    .device_of = device_of,
    .open = session_open,
    .close = session_close,
    .enter = scope_enter,
    .leave = scope_leave,
    .wait_for_stream = scope_wait_for_stream,
    .use = scope_use,
    .run = run,
    .run_many = run_many,
    .prepare = prepare,
    .use_pairs = scope_use_pairs,
    .download = download,
    .duplicate = duplicate,
    .export_to = export_to,
    .is_ready = is_ready,
    .share = buffer_share,
    .drop = buffer_drop,
};
