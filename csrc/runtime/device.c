#include "device.h"

const Device *const device_kinds[DEVICE_KINDS] = {
    [DEVICE_CPU] = &cpu_device,
#ifdef SGEMM_CUDA
    [DEVICE_CUDA] = &cuda_device,
#endif
};

Status cuda_count(int *count)
{
    if (!device_kinds[DEVICE_CUDA]) {
        *count = 0;
        return status_error(
            STATUS_UNSUPPORTED,
            "this build has no GPU support (it was built with SGEMM_KERNELS_CUDA=0)");
    }
    Status why;
    *count = device_kinds[DEVICE_CUDA]->count(&why);
    return why;
}

int first_usable_gpu(Status *why)
{
    int count;
    *why = cuda_count(&count);
    for (int index = 0; index < count; ++index) {
        *why = device_kinds[DEVICE_CUDA]->usable(index);
        if (why->code == STATUS_OK) {
            return index;
        }
    }
    return -1;
}

Status device_can_run(const Variant *variant, DeviceKind kind, int index)
{
    if (!variant->launch[kind]) {
        Status why = status_ok();
        if (kind == DEVICE_CPU) {
            first_usable_gpu(&why);
        }
        return status_error(STATUS_UNSUPPORTED, "variant '%s' does not run on the %s%s%s",
                            variant->name,
                            kind == DEVICE_CPU ? "CPU device: it needs a GPU" : GPU_REFUSAL,
                            why.code == STATUS_OK ? "" : ". No usable GPU: ", why.message);
    }
    if (kind == DEVICE_CPU) {
        return status_ok();
    }
    int found[2];
    device_kinds[kind]->compute_capability(index, found);
    const int *const needed = variant->min_compute_capability;
    const bool same = found[0] == needed[0] && found[1] == needed[1];
    const bool newer = found[0] > needed[0] || (found[0] == needed[0] && found[1] > needed[1]);
    if (same || (newer && !variant->architecture_specific)) {
        return status_ok();
    }
    return status_error(
        STATUS_UNSUPPORTED,
        "variant '%s' needs compute capability %d.%d%s, but " GPU_KIND ":%d has %d.%d",
        variant->name, needed[0], needed[1],
        variant->architecture_specific ? " exactly" : " or newer", index, found[0], found[1]);
}
