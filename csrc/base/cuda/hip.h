/* Lets CUDA sources compile as HIP. A build for AMD GPUs includes this before every source of
 * kernels and of csrc/runtime/cuda, as nvcc includes the CUDA runtime. */
#ifndef SGEMM_CUDA_HIP_H
#define SGEMM_CUDA_HIP_H

#include "hip_names.h"

#include <cstddef>

/* A stream handle as in CUDA: 1 is the legacy default stream and NULL means no stream. In HIP, NULL
 * is the default stream. */
class HipStream {
    void *handle;

  public:
    HipStream() = default;
    HipStream(std::nullptr_t) : handle(nullptr) {}
    explicit HipStream(void *handle) : handle(handle) {}

    static HipStream legacy()
    {
        return HipStream(reinterpret_cast<void *>(1));
    }
    explicit operator bool() const
    {
        return handle != nullptr;
    }
    operator void *() const
    {
        return handle;
    }
    operator hipStream_t() const
    {
        return *this == legacy() ? nullptr : static_cast<hipStream_t>(handle);
    }
    friend bool operator==(const HipStream &a, const HipStream &b)
    {
        return a.handle == b.handle;
    }
    friend bool operator!=(const HipStream &a, const HipStream &b)
    {
        return !(a == b);
    }
};

#undef cudaStream_t
#define cudaStream_t HipStream
#define cudaStreamLegacy HipStream::legacy()
#undef cudaStreamPerThread
#define cudaStreamPerThread HipStream(hipStreamPerThread)

static inline hipError_t hipStreamCreateWithFlags(HipStream *stream, unsigned flags)
{
    hipStream_t made = nullptr;
    const hipError_t error = hipStreamCreateWithFlags(&made, flags);
    *stream = HipStream(made);
    return error;
}

/* HIP has no stream IDs. */
static inline hipError_t cudaStreamGetId(HipStream, unsigned long long *)
{
    return hipErrorNotSupported;
}

/* Converts HIP's version number to CUDA's format: 5.2 is 5020. */
static inline hipError_t hip_driver_version(int *version)
{
    const hipError_t error = hipDriverGetVersion(version);
    *version = *version / 10000000 * 1000 + *version / 100000 % 100 * 10;
    return error;
}
#undef cudaDriverGetVersion
#define cudaDriverGetVersion hip_driver_version

/* Errors that only NVIDIA GPUs report. HIP does not use these numbers. */
#define cudaErrorNvlinkUncorrectable static_cast<hipError_t>(220)
#define cudaErrorHardwareStackError static_cast<hipError_t>(714)
#define cudaErrorIllegalInstruction static_cast<hipError_t>(715)
#define cudaErrorMisalignedAddress static_cast<hipError_t>(716)
#define cudaErrorInvalidAddressSpace static_cast<hipError_t>(717)
#define cudaErrorInvalidPc static_cast<hipError_t>(718)

#endif
