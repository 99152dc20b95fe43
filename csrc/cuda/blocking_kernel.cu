#include "blocking_kernel.h"

static constexpr unsigned long long hold_nanoseconds = 20'000'000;

static __global__ void hold(volatile Gate *gate)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    while (!gate->open) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - begin > hold_nanoseconds) {
            gate->gave_up = 1;
            return;
        }
    }
}

extern "C" cudaError_t launch_blocking_kernel(volatile Gate *gate, cudaStream_t stream)
{
    hold<<<1, 1, 0, stream>>>(gate);
    return cudaGetLastError();
}
