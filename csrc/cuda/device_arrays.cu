/* Products of arrays that are on GPUs, and the memory of their results. */
#include "device_arrays.h"

#include <stdlib.h>

#include "allocator.h"
#include "copy.h"
#include "streams.h"
#include "strided_copy.h"

namespace {

/* How much memory that was lent may wait to be given back, which takes a wait for the device. */
constexpr int64_t most_lent_bytes = 256 << 20;
constexpr int most_lent_blocks = 64;

Status checked(const Visit *visit, const char *what, cudaError_t error)
{
    return device_checked(visit->session.index, what, error);
}

cudaStream_t stream_of(const Visit *visit)
{
    return static_cast<cudaStream_t>(visit->stream);
}

Status device_of(const void *address, int *device)
{
    cudaPointerAttributes attributes;
    *device = -1;
    const cudaError_t error = cudaPointerGetAttributes(&attributes, address);
    if (error != cudaSuccess) {
        cudaGetLastError(); /* a failure that is not final ends here */
        return status_error(STATUS_DEVICE, "asking whose memory %p is failed: %s (%s)", address,
                            cudaGetErrorString(error), cudaGetErrorName(error));
    }
    if (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged) {
        *device = attributes.device;
    }
    return status_ok();
}

/* ------------------------------------------------------------------ blocks */

/* The block's device is current. */
bool is_done(const DeviceBuffer *block)
{
    const bool done =
        !block->ready || cudaEventQuery(static_cast<cudaEvent_t>(block->ready)) == cudaSuccess;
    cudaGetLastError();
    return done;
}

bool is_ready(const DeviceBuffer *block)
{
    Session session;
    if (!block->ready || cuda_device.open(block->device, &session).code != STATUS_OK) {
        return !block->ready;
    }
    const bool done = is_done(block);
    cuda_device.close(&session);
    return done;
}

/* Queues a wait until a block is ready. */
Status await(Visit *visit, const DeviceBuffer *block)
{
    return block->ready ? checked(visit, "waiting for an operand",
                                  cudaStreamWaitEvent(stream_of(visit),
                                                      static_cast<cudaEvent_t>(block->ready), 0))
                        : status_ok();
}

void put_back_passed(Visit *visit)
{
    while (visit->passed) {
        DeviceBuffer *const block = visit->passed;
        visit->passed = block->next;
        buffer_put_back(block);
    }
}

/* Gives back the memory of blocks on this device that nobody owns and no work uses any more. For
 * those that were lent, that is known only after a wait for the whole device: when many have come
 * together, or when `all` are to go. */
void give_back(Visit *visit, bool all)
{
    put_back_passed(visit);
    DeviceBuffer *block = buffer_take_dropped();
    int64_t lent_bytes = 0;
    int lent_blocks = 0;
    for (const DeviceBuffer *each = block; each; each = each->next) {
        if (each->device == visit->session.index && each->lent) {
            lent_bytes += each->matrix.rows * each->matrix.cols * (int64_t)sizeof(float);
            ++lent_blocks;
        }
    }
    all = (all || lent_bytes > most_lent_bytes || lent_blocks > most_lent_blocks) &&
          cudaDeviceSynchronize() == cudaSuccess;
    while (block) {
        DeviceBuffer *const next = block->next;
        if (block->device == visit->session.index && (all || (!block->lent && is_done(block)))) {
            device_give(block->device, block->matrix.data);
            if (block->ready) {
                cudaEventDestroy(static_cast<cudaEvent_t>(block->ready));
            }
            free(block);
        } else if (!block->lent && block->ready && block->stream == visit->stream) {
            block->next = visit->passed;
            visit->passed = block;
        } else {
            buffer_put_back(block);
        }
        block = next;
    }
}

/* Takes a passed block of so many elements; NULL if there is none. */
DeviceBuffer *take_passed(Visit *visit, int64_t rows, int64_t cols)
{
    DeviceBuffer **place = &visit->passed;
    while (*place && ((*place)->matrix.rows != rows || (*place)->matrix.cols != cols)) {
        place = &(*place)->next;
    }
    DeviceBuffer *const block = *place;
    if (block) {
        *place = block->next;
        block->owners = 1;
    }
    return block;
}

/* Memory for a rows x cols matrix, its rows following one another. On failure *made is NULL. */
Status buffer_new(Visit *visit, int64_t rows, int64_t cols, DeviceBuffer **made)
{
    *made = take_passed(visit, rows, cols);
    if (*made) {
        /* For the case that the stream is a later one, to which the handle has passed. */
        const Status status = await(visit, *made);
        if (status.code != STATUS_OK) {
            buffer_drop(*made);
            *made = nullptr;
        }
        return status;
    }
    DeviceBuffer *const block = static_cast<DeviceBuffer *>(calloc(1, sizeof *block));
    *made = block;
    if (!block) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory on the host to account for a matrix");
    }
    block->device = visit->session.index;
    block->owners = 1;
    block->matrix = {nullptr, rows, cols, cols, 1};
    const int64_t most = PTRDIFF_MAX / static_cast<int64_t>(sizeof(float));
    const size_t bytes = rows > 0 && cols > most / rows
                             ? PTRDIFF_MAX
                             : static_cast<size_t>(rows * cols) * sizeof(float);
    void *memory = nullptr;
    Status status = device_take(block->device, bytes, &memory);
    if (status.code == STATUS_OUT_OF_MEMORY) {
        give_back(visit, true);
        status = device_take(block->device, bytes, &memory);
    }
    if (status.code != STATUS_OK) {
        free(block);
        *made = nullptr;
        return status.code != STATUS_OUT_OF_MEMORY
                   ? status
                   : status_error(
                         STATUS_OUT_OF_MEMORY,
                         "no room for %lld x %lld float32: %.300s; give back what is not "
                         "needed there, or pass NumPy arrays, which go through it in panels",
                         static_cast<long long>(rows), static_cast<long long>(cols),
                         status.message);
    }
    block->matrix.data = static_cast<float *>(memory);
    return status;
}

/* Notes that the block is ready once what is queued by now is done. */
Status mark(Visit *visit, DeviceBuffer *block)
{
    cudaEvent_t event = static_cast<cudaEvent_t>(block->ready);
    cudaError_t error =
        event ? cudaSuccess : cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) {
        block->stream = visit->stream;
        block->ready = event;
        error = cudaEventRecord(event, stream_of(visit));
    }
    block->lent = block->lent || error != cudaSuccess; /* nothing else tells when it is unused */
    return checked(visit, "marking the end of a product", error);
}

/* ------------------------------------------------------------------ streams */

Status enter(int index, void *stream, Visit *visit)
{
    *visit = {};
    Status status = cuda_device.open(index, &visit->session);
    if (status.code != STATUS_OK) {
        return status;
    }
    if (!stream) {
        status = streams_take(index, &visit->streams);
    }
    if (status.code != STATUS_OK) {
        cuda_device.close(&visit->session);
        return status;
    }
    visit->stream = stream ? stream : visit->streams->run;
    give_back(visit, false);
    return status;
}

void leave(Visit *visit)
{
    put_back_passed(visit);
    if (visit->streams) {
        streams_give(visit->session.index, visit->streams);
    }
    cuda_device.close(&visit->session);
}

Status wait_for_stream(Visit *visit, void *stream)
{
    cudaEvent_t event;
    if (stream == visit->stream) {
        return status_ok();
    }
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) {
        error = cudaEventRecord(event, static_cast<cudaStream_t>(stream));
        if (error == cudaSuccess) {
            error = cudaStreamWaitEvent(stream_of(visit), event, 0);
        }
        cudaEventDestroy(event);
    }
    return checked(visit, "waiting for an operand's stream", error);
}

Status wait_for_block(Visit *visit, DeviceBuffer *block)
{
    if (!visit->streams) {
        block->lent = true; /* it may go before what this visit queues has read it */
    }
    return await(visit, block);
}

/* ------------------------------------------------------------------ one product */

/* Lines that follow one another, as copy engines and cuBLAS want them. */
bool lines_in_order(const Matrix &matrix)
{
    return matrix.col_stride == 1 ? matrix.rows <= 1 || matrix.row_stride >= matrix.cols
                                  : matrix.cols <= 1 || matrix.col_stride >= matrix.rows;
}

Status copy_elements(Visit *visit, const Strided &to, const Strided &from)
{
    return to.rows == 0 || to.cols == 0
               ? status_ok()
               : checked(visit, "copying an array",
                         launch_strided_copy(&to, &from, stream_of(visit)));
}

/* The array as a matrix that every variant can read: where it lies, or else a copy of it. */
Status take(Visit *visit, const Strided &array, Matrix *matrix, DeviceBuffer **copy)
{
    if (strided_as_matrix(&array, matrix) && lines_in_order(*matrix)) {
        return status_ok();
    }
    const Status status = buffer_new(visit, array.rows, array.cols, copy);
    if (status.code != STATUS_OK) {
        return status;
    }
    *matrix = (*copy)->matrix;
    return copy_elements(visit, strided_of_matrix(matrix), array);
}

Status launch_here(Visit *visit, const Variant *variant, const Sgemm &problem)
{
    const Launch where = {visit->session.index, visit->stream, nullptr};
    Status status = variant->launch[DEVICE_CUDA](&problem, &where);
    if (status.code == STATUS_OUT_OF_MEMORY) {
        give_back(visit, true);
        status = variant->launch[DEVICE_CUDA](&problem, &where);
    }
    return status;
}

/* ------------------------------------------------------------------ rows for several GPUs */

/* Rows of a product on a GPU of its own, where operands and result are copies. */
struct Part {
    Visit visit;
    Sgemm there;
};

Matrix rows_of(const Matrix &matrix, int64_t first, int64_t count)
{
    return {matrix.data + first * matrix.row_stride, count, matrix.cols, matrix.row_stride,
            matrix.col_stride};
}

/* Queues a copy between GPUs, of matrices of one storage order whose lines are in order. */
Status send(const Part &part, const Matrix &to, const Matrix &from)
{
    return checked(&part.visit, "copying between GPUs",
                   queue_matrix_copy(&to, &from, cudaMemcpyDefault, stream_of(&part.visit)));
}

/* Memory for a copy of a matrix on the part's GPU, and the copy. */
Status fetch(Part *part, Matrix *copy, const Matrix &from, bool filled)
{
    const Status status = cuda_device.allocate(&part->visit.session, from.rows, from.cols,
                                               from.col_stride != 1, copy);
    return status.code == STATUS_OK && filled ? send(*part, *copy, from) : status;
}

/* Lets two GPUs, of which `home` is current, reach each other's memory directly, where they can; if
 * not, copies between them go through the host. */
void connect(int home, int away)
{
    Session session;
    cudaDeviceEnablePeerAccess(away, 0);
    if (cuda_device.open(away, &session).code == STATUS_OK) {
        cudaDeviceEnablePeerAccess(home, 0);
        cuda_device.close(&session);
    }
    cudaGetLastError();
}

/* Queues one part; on failure, what was begun is left for finish_part. */
Status begin_part(Part *part, const Sgemm &rows, const Variant *variant, cudaEvent_t operands_ready)
{
    Status status = checked(&part->visit, "waiting for the operands' GPU",
                            cudaStreamWaitEvent(stream_of(&part->visit), operands_ready, 0));
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
        status = launch_here(&part->visit, variant, part->there);
    }
    return status.code == STATUS_OK ? send(*part, rows.C, part->there.C) : status;
}

Status finish_part(Part *part)
{
    const Status status =
        checked(&part->visit, "computing", cudaStreamSynchronize(stream_of(&part->visit)));
    cuda_device.release(&part->visit.session, &part->there.A);
    cuda_device.release(&part->visit.session, &part->there.B);
    cuda_device.release(&part->visit.session, &part->there.C);
    leave(&part->visit);
    return status;
}

/* How many rows each other GPU takes, so that all finish together: such a GPU spends as long on
 * copying a float as on so many multiply-adds. (Measured on two H200: 27e12 multiply-adds a second and,
 * by NVLink, 96e9 floats. Where copies are slower, a product takes longer but is as right.) */
int64_t rows_for_others(const Sgemm &problem, int others)
{
    const double multiply_adds_a_float = 280;
    const double M = static_cast<double>(problem.C.rows), N = static_cast<double>(problem.C.cols),
                 K = static_cast<double>(problem.A.cols);
    const double rows = (M * N * K - multiply_adds_a_float * K * N) /
                        ((others + 1) * N * K + multiply_adds_a_float * (K + N));
    return rows > 0 ? static_cast<int64_t>(rows) : 0;
}

Status launch_on_all(Visit *visit, const Variant *variant, const Sgemm &problem, const int *devices,
                     int count)
{
    const int64_t rows_each = rows_for_others(problem, count - 1);
    if (rows_each == 0) {
        return launch_here(visit, variant, problem);
    }
    for (int other = 1; other < count; ++other) {
        connect(visit->session.index, devices[other]);
    }
    Part *const parts = static_cast<Part *>(calloc(static_cast<size_t>(count), sizeof(Part)));
    cudaEvent_t operands_ready = nullptr;
    Status status =
        parts ? checked(visit, "making an event",
                        cudaEventCreateWithFlags(&operands_ready, cudaEventDisableTiming))
              : status_error(STATUS_OUT_OF_MEMORY, "no memory on the host to divide a product");
    if (status.code == STATUS_OK) {
        status = checked(visit, "marking the operands",
                         cudaEventRecord(operands_ready, stream_of(visit)));
    }
    int64_t row = problem.C.rows - rows_each * (count - 1);
    Sgemm rows = problem;
    rows.A = rows_of(problem.A, 0, row);
    rows.C = rows_of(problem.C, 0, row);
    if (status.code == STATUS_OK) {
        status = launch_here(visit, variant, rows);
    }
    int begun = 1;
    for (; begun < count && status.code == STATUS_OK; ++begun, row += rows_each) {
        Part *const part = &parts[begun];
        status = enter(devices[begun], nullptr, &part->visit);
        if (status.code != STATUS_OK) {
            break;
        }
        rows.A = rows_of(problem.A, row, rows_each);
        rows.C = rows_of(problem.C, row, rows_each);
        part->there.alpha = rows.alpha;
        part->there.beta = rows.beta;
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

/* ------------------------------------------------------------------ run */

/* What a product takes beside its operands. */
struct Scratch {
    DeviceBuffer *A, *B, *C;
};

Status compute(Visit *visit, const Product &product, const int *devices, int count,
               Scratch *scratch)
{
    Sgemm problem = {};
    problem.alpha = product.alpha;
    problem.beta = product.beta;
    Status status = take(visit, product.A, &problem.A, &scratch->A);
    if (status.code == STATUS_OK) {
        status = take(visit, product.B, &problem.B, &scratch->B);
    }
    if (status.code != STATUS_OK) {
        return status;
    }
    const bool direct = strided_as_matrix(&product.out, &problem.C) && problem.C.col_stride == 1 &&
                        lines_in_order(problem.C) && !product_must_wait(&product);
    if (!direct) {
        status = buffer_new(visit, product.out.rows, product.out.cols, &scratch->C);
        if (status.code != STATUS_OK) {
            return status;
        }
        problem.C = scratch->C->matrix;
    }
    const Strided result = strided_of_matrix(&problem.C);
    if (product.beta != 0.0f && !(direct && product_is_in_place(&product))) {
        status = copy_elements(visit, result, product.C);
    }
    if (status.code == STATUS_OK) {
        status = count > 1 ? launch_on_all(visit, product.variant, problem, devices, count)
                           : launch_here(visit, product.variant, problem);
    }
    return status.code == STATUS_OK && !direct ? copy_elements(visit, product.out, result) : status;
}

Status run(Visit *visit, const Product *wanted, const int *devices, int count,
           DeviceBuffer **result)
{
    Product product = *wanted;
    if (product.alpha == 0.0f || product.A.cols == 0) {
        /* Nothing of A and B is read: what is left of the sum is no terms, times nothing. */
        product.A.cols = product.B.rows = 0;
        product.alpha = 0.0f;
    }
    DeviceBuffer *made = nullptr;
    Scratch scratch = {};
    Status status = status_ok();
    if (!product.out.data) {
        status = buffer_new(visit, product.A.rows, product.B.cols, &made);
        if (status.code != STATUS_OK) {
            return status;
        }
        product.out = strided_of_matrix(&made->matrix);
    }
    if (product.out.rows > 0 && product.out.cols > 0) {
        status = compute(visit, product, devices, count, &scratch);
    }
    const bool wait = visit->streams || count > 1 || status.code != STATUS_OK;
    if (wait) {
        const Status finished =
            checked(visit, "computing", cudaStreamSynchronize(stream_of(visit)));
        status = status.code == STATUS_OK ? finished : status;
    }
    for (DeviceBuffer *const block : {made ? made : *result, scratch.A, scratch.B, scratch.C}) {
        if (block && !wait) {
            const Status marked = mark(visit, block);
            status = status.code == STATUS_OK ? marked : status;
        }
    }
    for (DeviceBuffer *const block : {scratch.A, scratch.B, scratch.C}) {
        if (block) {
            buffer_drop(block);
        }
    }
    if (made && status.code != STATUS_OK) {
        buffer_drop(made);
    } else if (made) {
        *result = made;
    }
    return status;
}

/* ------------------------------------------------------------------ results */

Status order(const DeviceBuffer *block, void *stream)
{
    /* In the block's own stream too: its handle may by now be that of a later stream, or stand, as
     * cudaStreamPerThread does, for another one in each thread. */
    if (!block->ready) {
        return status_ok();
    }
    Session session;
    Status status = cuda_device.open(block->device, &session);
    if (status.code == STATUS_OK) {
        status = device_checked(block->device, "ordering a stream after a result",
                                cudaStreamWaitEvent(static_cast<cudaStream_t>(stream),
                                                    static_cast<cudaEvent_t>(block->ready), 0));
        cuda_device.close(&session);
    }
    return status;
}

Status download(const DeviceBuffer *block, float *host)
{
    Session session;
    Status status = cuda_device.open(block->device, &session);
    if (status.code != STATUS_OK) {
        return status;
    }
    if (block->ready) {
        status = device_checked(block->device, "waiting for a result",
                                cudaEventSynchronize(static_cast<cudaEvent_t>(block->ready)));
    }
    if (status.code == STATUS_OK) {
        const Matrix there = {host, block->matrix.rows, block->matrix.cols, block->matrix.cols, 1};
        status = cuda_device.download(&session, &there, &block->matrix);
        const Status finished = cuda_device.finish(&session);
        status = status.code == STATUS_OK ? finished : status;
    }
    cuda_device.close(&session);
    return status;
}

Status duplicate(DeviceBuffer *block, DeviceBuffer **copy)
{
    Visit visit;
    Status status = enter(block->device, nullptr, &visit);
    if (status.code != STATUS_OK) {
        return status;
    }
    DeviceBuffer *made = nullptr;
    status = wait_for_block(&visit, block);
    if (status.code == STATUS_OK) {
        status = buffer_new(&visit, block->matrix.rows, block->matrix.cols, &made);
    }
    if (status.code == STATUS_OK) {
        status = copy_elements(&visit, strided_of_matrix(&made->matrix),
                               strided_of_matrix(&block->matrix));
        const Status finished =
            checked(&visit, "copying a result", cudaStreamSynchronize(stream_of(&visit)));
        status = status.code == STATUS_OK ? finished : status;
    }
    if (made && status.code != STATUS_OK) {
        buffer_drop(made);
    } else if (made) {
        *copy = made;
    }
    leave(&visit);
    return status;
}

} // namespace

extern "C" void cuda_give_idle_back(void)
{
    Status why;
    const int count = cuda_device.count(&why);
    for (int index = 0; index < count; ++index) {
        Visit visit;
        if (device_is_used(index) && enter(index, nullptr, &visit).code == STATUS_OK) {
            give_back(&visit, true);
            device_trim(index);
            leave(&visit);
        }
    }
}

extern const DeviceArrays cuda_arrays = {
    .share = buffer_share,
    .drop = buffer_drop,
    .device_of = device_of,
    .enter = enter,
    .leave = leave,
    .wait_for_stream = wait_for_stream,
    .wait_for_block = wait_for_block,
    .run = run,
    .download = download,
    .duplicate = duplicate,
    .order = order,
    .is_ready = is_ready,
};
