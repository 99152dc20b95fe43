/* Kernel times from CUDA events. A small kernel blocks the stream until both events and the launch
 * between them are queued, so the times exclude the host's launch overhead. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "../../base/cuda/allocator.h"
#include "../../base/cuda/failures.h"
#include "../device.h"
#include "blocking_kernel.h"
#include "contiguous.h"
#include "cublas.h"
#include "device_matrix.h"
#include "session.h"
#include "streams.h"

namespace {

Status checked(cudaError_t error)
{
    return error == cudaSuccess
               ? status_ok()
               : status_error(STATUS_DEVICE, "measuring failed: %s", cudaGetErrorString(error));
}

/* The current device and the streams used for a measurement. */
struct Place {
    int device;
    Streams *streams;
};

Status enter(int device, Place *place)
{
    *place = {device, nullptr};
    Status status = session_open(device);
    if (status.code == STATUS_OK) {
        status = streams_alloc(device, &place->streams);
        if (status.code != STATUS_OK) {
            session_close();
        }
    }
    return status;
}

Status finish(const Place *place)
{
    return device_checked(place->device, "computing", cudaStreamSynchronize(place->streams->run));
}

/* Call finish first. */
void leave(const Place *place)
{
    allocator_settle(place->device, place->streams->run, true);
    streams_free(place->device, place->streams);
    session_close();
}

/* The matrices of a batch, which follow one another, as the rows of one matrix. */
Matrix joined(const Matrix *first, int64_t products)
{
    const int64_t size = first->rows * first->cols;
    return products == 1 ? *first : Matrix{first->data, products, size, size, 1};
}

/* Queues a copy to or from the host. */
Status copy(const Place *place, const Measurement *m, const Matrix *to, const Matrix *from)
{
    const Matrix to_all = joined(to, m->products), from_all = joined(from, m->products);
    return device_checked(
        place->device, "copying from or to the host",
        device_matrix_copy(&to_all, &from_all, cudaMemcpyDefault, place->streams->run));
}

/* Queues one product or batch of variant `index`, or of the competitor. */
Status launch(const Measurement *m, int index, const Sgemm *problem, const Launch *where)
{
    const Variant *const variant = m->variants[index];
    int64_t launched = 0;
    return variant ? launch_contiguous(variant, problem, where, &launched)
                   : m->compete(m->context, index, problem);
}

/* Takes one sample in seconds; NaN if the blocking kernel timed out. A kernel that takes contiguous
 * matrices gets its copies before, and the result is copied afterwards. */
Status sample(const Measurement *m, int index, const Sgemm *problem, const Launch *where,
              volatile Blocker *blocker, cudaEvent_t begin, cudaEvent_t end, double *seconds)
{
    const cudaStream_t stream =
        m->variants[index] ? static_cast<cudaStream_t>(where->stream) : cudaStreamLegacy;
    ContiguousProduct product(*problem, where);
    Sgemm packed = *problem;
    Status launched = m->variants[index] && m->variants[index]->spec.contiguous && m->products == 1
                          ? product.prepare(&packed)
                          : status_ok();
    if (launched.code != STATUS_OK) {
        return launched;
    }
    blocker->open = 0;
    blocker->timed_out = 0;
    const cudaError_t held = launch_blocking_kernel(blocker, stream);
    if (held != cudaSuccess) {
        return checked(held);
    }
    /* Only the product may be between the two events. */
    const bool by_library = m->variants[index] && cublas_launches(m->variants[index]);
    launched = by_library ? cublas_begin(where->device, stream) : status_ok();
    const bool begun = launched.code == STATUS_OK;
    cudaEventRecord(begin, stream);
    launched = begun ? launch(m, index, &packed, where) : launched;
    cudaEventRecord(end, stream);
    launched = launched.code == STATUS_OK ? product.write_back() : launched;
    if (by_library && begun) {
        const Status ended = cublas_end(where->device, stream);
        launched = launched.code == STATUS_OK ? ended : launched;
    }
    blocker->open = 1;
    const cudaError_t error = cudaStreamSynchronize(stream);
    if (launched.code != STATUS_OK || error != cudaSuccess) {
        return launched.code != STATUS_OK ? launched : checked(error);
    }
    float milliseconds = 0.0f;
    cudaEventElapsedTime(&milliseconds, begin, end);
    *seconds = blocker->timed_out ? NAN : milliseconds / 1e3;
    return status_ok();
}

/* Allocates a matrix as run would: only a single one has gaps between its rows. */
Status allocate(const Place *place, const Measurement *m, int64_t rows, int64_t cols,
                bool column_major, Matrix *there)
{
    if (m->products == 1) {
        return device_matrix_allocate(place->device, rows, cols, column_major, there);
    }
    Matrix memory;
    const Status status =
        device_matrix_allocate(place->device, 1, m->products * rows * cols, false, &memory);
    *there = {memory.data, rows, cols, column_major ? 1 : cols, column_major ? rows : 1,
              rows * cols};
    return status;
}

Status send(const Place *place, const Measurement *m, const Matrix *host, Matrix *there)
{
    const Status status = allocate(place, m, host->rows, host->cols, host->col_stride != 1, there);
    return status.code == STATUS_OK ? copy(place, m, there, host) : status;
}

Status send_problem(const Place *place, const Measurement *m, Sgemm *there)
{
    there->alpha = 1.0f;
    there->count = m->products;
    Status status = send(place, m, &m->A, &there->A);
    if (status.code == STATUS_OK) {
        status = send(place, m, &m->B, &there->B);
    }
    if (status.code == STATUS_OK) {
        status = allocate(place, m, m->A.rows, m->B.cols, false, &there->C);
    }
    return status;
}

void release_problem(const Place *place, Sgemm *there)
{
    device_matrix_release(place->device, &there->A);
    device_matrix_release(place->device, &there->B);
    device_matrix_release(place->device, &there->C);
}

Status measure_on(const Place *place, const Measurement *m, Sgemm *problems,
                  volatile Blocker *blocker, cudaEvent_t begin, cudaEvent_t end)
{
    const Launch where = {place->device, place->streams->run, nullptr, {}, false};
    Status status = status_ok();
    for (int set = 0; set < m->sets && status.code == STATUS_OK; ++set) {
        status = send_problem(place, m, &problems[set]);
    }
    /* Warm up: the first launch of a kernel loads it, which may wait for an idle device. A single
     * round has no warm-up, since its launches may be long. Kernels that ran in a check are already
     * loaded; for others the blocking kernel times out and the sample is NaN. */
    for (int index = 0; m->rounds > 1 && index < m->count && status.code == STATUS_OK; ++index) {
        status = launch(m, index, &problems[0], &where);
    }
    if (m->C.data && status.code == STATUS_OK) {
        status = copy(place, m, &problems[0].C, &m->C);
    }
    if (status.code == STATUS_OK) {
        status = finish(place);
    }
    if (status.code == STATUS_OK) {
        status = checked(cudaStreamSynchronize(cudaStreamLegacy));
    }
    int launches = 0;
    for (int round = 0; round < m->rounds; ++round) {
        for (int index = 0; index < m->count && status.code == STATUS_OK; ++index) {
            status = sample(m, index, &problems[launches++ % m->sets], &where, blocker, begin, end,
                            &m->seconds[round * m->count + index]);
        }
    }
    return m->C.data && status.code == STATUS_OK ? copy(place, m, &m->C, &problems[0].C) : status;
}

/* The copies of run(), in the same order. */
Status copy_there_and_back(const Place *place, const Measurement *m, const Sgemm *there)
{
    Status status = copy(place, m, &there->A, &m->A);
    if (status.code == STATUS_OK) {
        status = copy(place, m, &there->B, &m->B);
    }
    if (status.code == STATUS_OK) {
        status = copy(place, m, &m->C, &there->C);
    }
    const Status finished = finish(place);
    return status.code == STATUS_OK ? finished : status;
}

double host_seconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

} // namespace

extern "C" Status cuda_measure(const Measurement *m)
{
    Place place;
    Status status = enter(m->device, &place);
    if (status.code != STATUS_OK) {
        return status;
    }
    Sgemm *const problems =
        static_cast<Sgemm *>(calloc(static_cast<size_t>(m->sets), sizeof(Sgemm)));
    Blocker *blocker = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
    if (!problems) {
        status = status_error(STATUS_OUT_OF_MEMORY,
                              "no host memory for the records of %d sets of operands", m->sets);
    } else {
        cudaError_t error = cudaHostAlloc(reinterpret_cast<void **>(&blocker), sizeof(Blocker),
                                          cudaHostAllocMapped);
        error = error == cudaSuccess ? cudaEventCreate(&begin) : error;
        error = error == cudaSuccess ? cudaEventCreate(&end) : error;
        status = checked(error);
        if (status.code == STATUS_OK) {
            status = measure_on(&place, m, problems, blocker, begin, end);
        }
    }
    const Status finished = finish(&place);
    for (int set = 0; problems && set < m->sets; ++set) {
        release_problem(&place, &problems[set]);
    }
    if (begin) {
        cudaEventDestroy(begin);
    }
    if (end) {
        cudaEventDestroy(end);
    }
    cudaFreeHost(blocker);
    free(problems);
    leave(&place);
    return status.code == STATUS_OK ? finished : status;
}

extern "C" Status cuda_measure_copies(const Measurement *m)
{
    Place place;
    Status status = enter(m->device, &place);
    if (status.code != STATUS_OK) {
        return status;
    }
    Sgemm there = {};
    status = send_problem(&place, m, &there);
    /* Untimed, since the operating system allocates C's pages on the first write. */
    if (status.code == STATUS_OK) {
        status = copy_there_and_back(&place, m, &there);
    }
    for (int round = 0; round < m->rounds && status.code == STATUS_OK; ++round) {
        const double begin = host_seconds();
        status = copy_there_and_back(&place, m, &there);
        m->seconds[round] = host_seconds() - begin;
    }
    const Status finished = finish(&place);
    release_problem(&place, &there);
    leave(&place);
    return status.code == STATUS_OK ? finished : status;
}
