#include "blocking_kernel.h"

/* Clock ticks in 20 ms, after which the kernel stops blocking the stream. */
#ifdef SGEMM_HIP
/* gfx908 and later tick at 100 MHz. Older GPUs tick at about 27 MHz, so there this is 75 ms. */
static constexpr unsigned long long hold_ticks = 2'000'000;

static __device__ unsigned long long ticks()
{
    return static_cast<unsigned long long>(__builtin_amdgcn_s_memrealtime());
}
#else
static constexpr unsigned long long hold_ticks = 20'000'000;

static __device__ unsigned long long ticks()
{
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}
#endif

static __global__ void hold(volatile Blocker *blocker)
{
    const unsigned long long begin = ticks();
    while (!blocker->open) {
        if (ticks() - begin > hold_ticks) {
            blocker->timed_out = 1;
            return;
        }
    }
}

extern "C" cudaError_t launch_blocking_kernel(volatile Blocker *blocker, void *stream)
{
    hold<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(blocker);
    return cudaGetLastError();
}
