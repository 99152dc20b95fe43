/* Kernel times by CUDA events. A small kernel holds the stream until both events and the launch
 * between them are queued, so that what the host takes to launch stays out of the time. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "../core/device.h"
#include "allocator.h"
#include "blocking_kernel.h"

namespace {

Status checked(cudaError_t error)
{
    return error == cudaSuccess
               ? status_ok()
               : status_error(STATUS_DEVICE, "measuring failed: %s", cudaGetErrorString(error));
}

/* One sample in seconds; NaN if the stream was not held long enough. */
Status sample(const Variant *variant, const Sgemm *problem, const Launch *where,
              volatile Gate *gate, cudaEvent_t begin, cudaEvent_t end, double *seconds)
{
    const cudaStream_t stream = static_cast<cudaStream_t>(where->stream);
    gate->open = gate->gave_up = 0;
    const cudaError_t held = launch_blocking_kernel(gate, stream);
    if (held != cudaSuccess) {
        return checked(held);
    }
    cudaEventRecord(begin, stream);
    const Status launched = variant->launch[DEVICE_CUDA](problem, where);
    cudaEventRecord(end, stream);
    gate->open = 1;
    const cudaError_t error = cudaStreamSynchronize(stream);
    if (launched.code != STATUS_OK || error != cudaSuccess) {
        return launched.code != STATUS_OK ? launched : checked(error);
    }
    float milliseconds = 0.0f;
    cudaEventElapsedTime(&milliseconds, begin, end);
    *seconds = gate->gave_up ? NAN : milliseconds / 1e3;
    return status_ok();
}

Status send(Session *session, const Matrix *host, Matrix *there)
{
    const Status status =
        cuda_device.allocate(session, host->rows, host->cols, host->col_stride != 1, there);
    return status.code == STATUS_OK ? cuda_device.upload(session, there, host) : status;
}

Status send_problem(Session *session, const Measurement *m, Sgemm *there)
{
    there->alpha = 1.0f;
    Status status = send(session, &m->A, &there->A);
    if (status.code == STATUS_OK) {
        status = send(session, &m->B, &there->B);
    }
    if (status.code == STATUS_OK) {
        status = cuda_device.allocate(session, m->A.rows, m->B.cols, false, &there->C);
    }
    return status;
}

void release_problem(Session *session, Sgemm *there)
{
    cuda_device.release(session, &there->A);
    cuda_device.release(session, &there->B);
    cuda_device.release(session, &there->C);
}

Status measure_on(Session *session, const Measurement *m, Sgemm *problems, volatile Gate *gate,
                  cudaEvent_t begin, cudaEvent_t end)
{
    const Launch where = {session->index, session->stream, nullptr};
    Status status = status_ok();
    for (int set = 0; set < m->sets && status.code == STATUS_OK; ++set) {
        status = send_problem(session, m, &problems[set]);
    }
    /* The first launch of a kernel loads it, which may wait for the device to be idle. One round
     * alone goes without, since its launches may be long: what ran to be checked is loaded, and a
     * sample of anything else is found unfit. */
    for (int index = 0; m->rounds > 1 && index < m->count && status.code == STATUS_OK; ++index) {
        status = m->variants[index]->launch[DEVICE_CUDA](&problems[0], &where);
    }
    if (status.code == STATUS_OK) {
        status = cuda_device.finish(session);
    }
    int turn = 0;
    for (int round = 0; round < m->rounds; ++round) {
        for (int index = 0; index < m->count && status.code == STATUS_OK; ++index) {
            status = sample(m->variants[index], &problems[turn++ % m->sets], &where, gate, begin,
                            end, &m->seconds[round * m->count + index]);
        }
    }
    return status;
}

/* What run copies, and in its order. */
Status copy_there_and_back(Session *session, const Measurement *m, const Sgemm *there)
{
    Status status = cuda_device.upload(session, &there->A, &m->A);
    if (status.code == STATUS_OK) {
        status = cuda_device.upload(session, &there->B, &m->B);
    }
    if (status.code == STATUS_OK) {
        status = cuda_device.download(session, &m->C, &there->C);
    }
    const Status finished = cuda_device.finish(session);
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
    Session session;
    Status status = cuda_device.open(m->device, &session);
    if (status.code != STATUS_OK) {
        return status;
    }
    Sgemm *const problems =
        static_cast<Sgemm *>(calloc(static_cast<size_t>(m->sets), sizeof(Sgemm)));
    Gate *gate = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
    if (!problems) {
        status = status_error(STATUS_OUT_OF_MEMORY, "no memory for %d sets of operands", m->sets);
    } else {
        cudaError_t error =
            cudaHostAlloc(reinterpret_cast<void **>(&gate), sizeof(Gate), cudaHostAllocMapped);
        error = error == cudaSuccess ? cudaEventCreate(&begin) : error;
        error = error == cudaSuccess ? cudaEventCreate(&end) : error;
        status = checked(error);
        if (status.code == STATUS_OK) {
            status = measure_on(&session, m, problems, gate, begin, end);
        }
    }
    const Status finished = cuda_device.finish(&session);
    allocator_settle(m->device, static_cast<cudaStream_t>(session.stream), true);
    for (int set = 0; problems && set < m->sets; ++set) {
        release_problem(&session, &problems[set]);
    }
    if (begin) {
        cudaEventDestroy(begin);
    }
    if (end) {
        cudaEventDestroy(end);
    }
    cudaFreeHost(gate);
    free(problems);
    cuda_device.close(&session);
    return status.code == STATUS_OK ? finished : status;
}

extern "C" Status cuda_measure_copies(const Measurement *m)
{
    Session session;
    Status status = cuda_device.open(m->device, &session);
    if (status.code != STATUS_OK) {
        return status;
    }
    Sgemm there = {};
    status = send_problem(&session, m, &there);
    /* Untimed first: the operating system gives C its memory when it is first written. */
    if (status.code == STATUS_OK) {
        status = copy_there_and_back(&session, m, &there);
    }
    for (int round = 0; round < m->rounds && status.code == STATUS_OK; ++round) {
        const double begin = host_seconds();
        status = copy_there_and_back(&session, m, &there);
        m->seconds[round] = host_seconds() - begin;
    }
    const Status finished = cuda_device.finish(&session);
    release_problem(&session, &there);
    cuda_device.close(&session);
    return status.code == STATUS_OK ? finished : status;
}
