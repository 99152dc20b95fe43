/* Products by plans that the caller names, not the choice behind `simt`: what the package
 * compiles for it, compiled once more, with a way in. */
#include "../csrc/gemm/auto.cu"

/* What a launch asks of the package beside its kernels. */
extern "C" Status scratch_alloc(size_t bytes, const Launch *where, void **memory)
{
    const cudaError_t error =
        cudaMallocAsync(memory, bytes, static_cast<cudaStream_t>(where->stream));
    return error == cudaSuccess
               ? status_ok()
               : status_error(STATUS_OUT_OF_MEMORY, "%s", cudaGetErrorString(error));
}

extern "C" Status launch_failed(const Launch *, int error)
{
    return status_error(STATUS_DEVICE, "%s", cudaGetErrorString(static_cast<cudaError_t>(error)));
}

/* Each launch leaves them zero for the next, and all are in one stream. */
static unsigned *counters;

extern "C" Status counters_alloc(size_t count, const Launch *, unsigned **taken)
{
    constexpr size_t most = size_t{1} << 20;
    cudaError_t error = count <= most ? cudaSuccess : cudaErrorMemoryAllocation;
    if (error == cudaSuccess && !counters) {
        error = cudaMalloc(&counters, most * sizeof *counters);
        error = error == cudaSuccess ? cudaMemset(counters, 0, most * sizeof *counters) : error;
        if (error != cudaSuccess) {
            cudaFree(counters);
            counters = nullptr;
        }
    }
    *taken = counters;
    return error == cudaSuccess
               ? status_ok()
               : status_error(STATUS_OUT_OF_MEMORY, "%s", cudaGetErrorString(error));
}

extern "C" void scratch_free(void *memory, const Launch *where)
{
    if (memory != counters) {
        cudaFreeAsync(memory, static_cast<cudaStream_t>(where->stream));
    }
}

/* No plan leads here. */
extern "C" Status launch_warptile_cuda(const Sgemm *, const Launch *)
{
    return status_error(STATUS_UNSUPPORTED, "no plan");
}

extern "C" Status launch_mma_cuda(const Sgemm *, const Launch *)
{
    return status_error(STATUS_UNSUPPORTED, "no plan");
}

extern "C" Status launch_waves_cuda(const Sgemm *, const Launch *)
{
    return status_error(STATUS_UNSUPPORTED, "no plan");
}

extern "C" Status launch_fused_cuda(const Sgemm *, const Launch *)
{
    return status_error(STATUS_UNSUPPORTED, "no plan");
}

/* Freed memory stays in the pool of the process, as in the package. */
extern "C" int keep_scratch(int device)
{
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, device);
    if (error == cudaSuccess) {
        error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
    }
    return static_cast<int>(error);
}

/* Queues a product in the default stream of a device that is current. */
extern "C" Status multiply(const Sgemm *problem, int device, const Plan *plan)
{
    const Launch where = {device, nullptr, nullptr, {}, false};
    return launch_plan_cuda(problem, &where, plan);
}

extern "C" Status describe(int device, PlanDevice *found)
{
    const Launch where = {device, nullptr, nullptr, {}, false};
    return plan_device_cuda(&where, found);
}

extern "C" int list_plans(const Sgemm *problem, const PlanDevice *device, Plan *plans)
{
    const PlanShape shape = plan_shape(problem);
    return plan_list(&shape, device, plans);
}
