/* What the last of several blocks to arrive adds: what all of them have left in memory. */
#ifndef SGEMM_KERNELS_AUTO_ADD_LEFT_H
#define SGEMM_KERNELS_AUTO_ADD_LEFT_H

#include "../kernel.h"

static __device__ __forceinline__ void add_quad(float4 &sum, const float4 &more)
{
    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
}

/* Adds `count` parts of so many quads, `apart` quads from each other, and has each sum stored, by store(quad, sum).
 * Where there are more threads than quads some share a quad, each with every so many-th part; what they have is
 * added in `shared`, which has room for a quad of each thread. All in the same order each time. */
template <int THREADS, class Store>
static __device__ __forceinline__ void add_left(const float4 *parts, int quads, int64_t apart,
                                                int count, float4 *shared, Store store)
{
    const int thread = static_cast<int>(threadIdx.x);
    int side = THREADS, sharers = 1;
    UNROLL(1)
    while (side / 2 >= quads && side > 1) {
        side /= 2;
        sharers *= 2;
    }
    const int x = thread & (side - 1), y = thread / side;
    UNROLL(1)
    for (int first = 0; first < quads; first += side) {
        const int quad = first + x;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const float4 *from = parts + y * apart + quad;
        UNROLL(8)
        for (int part = y; part < count; part += sharers) {
            if (quad < quads) {
                add_quad(sum, *from);
            }
            from += sharers * apart;
        }
        if (sharers > 1) { // and this is all
            shared[thread] = sum;
            __syncthreads();
            for (int other = 1; other < sharers; ++other) {
                add_quad(sum, shared[other * side + x]);
            }
        }
        if (quad < quads && y == 0) {
            store(quad, sum);
        }
    }
}

#endif
