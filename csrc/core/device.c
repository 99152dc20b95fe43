#include "device.h"

const Device *const device_kinds[DEVICE_KINDS] = {
    [DEVICE_CPU] = &cpu_device,
#ifdef SGEMM_CUDA
    [DEVICE_CUDA] = &cuda_device,
#endif
};
