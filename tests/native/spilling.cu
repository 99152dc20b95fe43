/* A kernel that must spill: with 1,024 threads each has 64 registers, and this one needs 128 for
 * its accumulators. spills.py must report it for every architecture. */
extern "C" __global__ void __launch_bounds__(1024) spilling(const float *A, float *C, int K)
{
    float accumulators[128] = {};
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int i = 0; i < 128; ++i) {
            accumulators[i] += A[k] * A[k + i];
        }
    }
#pragma unroll
    for (int i = 0; i < 128; ++i) {
        C[128 * threadIdx.x + i] = accumulators[i];
    }
}
